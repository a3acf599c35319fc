// event_log: a ring of the last events, with one writer. Each worker has one; all other
// threads share one of the runtime.
//
// The rule. The writer fills a slot and then counts it in `written_`. A reader copies the
// slots, and looks at the count afterwards: it drops whatever may have been overwritten
// meanwhile.
//   EL1  the writer stores both words of a slot after the count of the event before.
//   EL2  a reader loads both words, then the count. If it has seen a word of a later
//        event, it sees the count of the event before that one, and drops the slot.
// Each store is a release, each load an acquire, which costs nothing on x86.
//
// Proof: tests/model/event_log_test.cpp.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/record/event.hpp"
#include "core/sched/record/fiber_identity.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// How a fiber has left its worker; `none`: no fiber was there.
enum class left_by : std::uint8_t { none, park, yield, end };

struct departure {
  left_by how = left_by::none;
  std::uint8_t reason = 0;  // a wait_reason, if it has parked
};

// The clock of a log.
enum class event_clock : std::uint8_t { ticks, monotonic, is_virtual };

class event_log {
 public:
  // Off if `events` is 0; otherwise keeps that many, rounded up to a power of two. Takes
  // 16 bytes of memory for each, once they are used. Throws std::bad_alloc.
  event_log(std::size_t events, const clock_source& clock);
  ~event_log();
  event_log(const event_log&) = delete;
  event_log& operator=(const event_log&) = delete;

  bool is_on() const noexcept { return recorder_is_built && slots_ != nullptr; }

  // --- from the writer, if it is on
  void write(event_kind kind, std::uint64_t value = 0, std::uint16_t detail = 0) noexcept;

  // At the time of the last write() or start(): to read it is most of an event's price.
  void write_too(event_kind kind, std::uint64_t value) noexcept;

  // The worker runs f now, for which another one has left, or none. `is_runner`: f runs
  // callbacks.
  void run(const fiber_identity& f, bool is_runner, departure of_last) noexcept;
  // The worker goes on by itself.
  void leave(const fiber_identity& last, departure how) noexcept;
  // `role`: a fiber_role.
  void start(const fiber_identity& f, std::uint8_t role) noexcept;
  void fired(event_kind kind, std::uint16_t timer_kind, nanos late) noexcept;

  // --- any thread
  // Copies the events, the oldest first, to `out`, which has room for `capacity()`;
  // returns their number.
  VIGIL_FOR_IO std::size_t copy(event* out) const noexcept;

  std::size_t capacity() const noexcept { return slots_ == nullptr ? 0 : mask_ + 1; }

  // The number of events ever written.
  // ordering: a statistic.
  std::uint64_t written() const noexcept { return written_.load(order::relaxed); }

  event_clock clock() const noexcept { return kind_of_clock_; }

  // One moment on both clocks.
  struct moment {
    std::uint64_t units;  // of the log's clock
    nanos now;            // on the runtime's
  };

  VIGIL_FOR_IO moment present() const noexcept;

  moment opened() const noexcept { return opened_; }

 private:
  struct slot {
    atomic<std::uint64_t> head;
    atomic<std::uint64_t> tail;
  };

  std::uint64_t now() const noexcept;
  void write_at(std::uint64_t time,
                event_kind kind,
                std::uint64_t value,
                std::uint16_t detail) noexcept;
  void write_otherwise(event_kind kind, std::uint64_t value, std::uint16_t detail) noexcept;
  void run_at(std::uint64_t t,
              event_clock clock,
              const fiber_identity& f,
              bool is_runner,
              departure of_last) noexcept;
  void run_otherwise(const fiber_identity& f, bool is_runner, departure of_last) noexcept;
  void write_words(std::uint64_t head, std::uint64_t tail) noexcept;
  void write_place(const fiber_identity& f) noexcept;

  slot* slots_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t written_at_ = 0;  // by write()
  static constexpr std::uint64_t none_runs = ~std::uint64_t{0};
  std::uint64_t running_since_ = none_runs;  // in units of the clock
  const clock_source& clock_;
  event_clock kind_of_clock_ = event_clock::monotonic;
  moment opened_{};
  alignas(cache_line) atomic<std::uint64_t> written_{0};
};

}  // namespace VIGIL_DETAIL
