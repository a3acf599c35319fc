#include "core/sched/record/event_log.hpp"

#include "core/base/ticks.hpp"
#include "core/sched/record/record_trigger.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace VIGIL_DETAIL {
namespace {

std::uint16_t detail_of(departure d) noexcept {
  return static_cast<std::uint16_t>(static_cast<unsigned>(d.how) << 8 | d.reason);
}

}  // namespace

// If it is off, no clock is read: a runtime has one of these for each worker.
event_log::event_log(std::size_t events, const clock_source& clock) : clock_(clock) {
  if (!recorder_is_built || events == 0) return;
  static const bool is_steady = ticks_are_steady();  // the look may trap to a hypervisor
  kind_of_clock_ = clock.is_virtual() ? event_clock::is_virtual
                   : is_steady        ? event_clock::ticks
                                      : event_clock::monotonic;
  opened_ = present();
  const std::size_t n = std::bit_ceil(std::max<std::size_t>(events, 2));  // one is being written
  // Pages that no event has reached cost nothing.
  void* const mapped =
      ::mmap(nullptr, n * sizeof(slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  slots_ = static_cast<slot*>(mapped);
  mask_ = n - 1;
}

event_log::~event_log() {
  if (slots_ != nullptr) ::munmap(slots_, capacity() * sizeof(slot));
}

// The best of three: the thread may lose its processor between the two clocks.
event_log::moment event_log::present() const noexcept {
  moment best{};
  std::uint64_t least = ~std::uint64_t{0};
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t before = now();
    const nanos at = clock_.now();
    const std::uint64_t span = now() - before;
    if (span >= least) continue;
    least = span;
    best = {before + span / 2, at};
  }
  return best;
}

inline std::uint64_t event_log::now() const noexcept {
  if (kind_of_clock_ == event_clock::ticks) return ticks();
  return static_cast<std::uint64_t>(clock_.now());
}

inline void event_log::write_words(std::uint64_t head, std::uint64_t tail) noexcept {
  const std::uint64_t n = written_.load(order::relaxed);  // ordering: the writer's own
  slot& s = slots_[n & mask_];
  s.head.store(head, order::release);     // EL1. Pairs with EL2 in copy().
  s.tail.store(tail, order::release);     // EL1. Pairs with EL2 in copy().
  written_.store(n + 1, order::release);  // Pairs with the loads in copy().
}

inline void event_log::write_at(std::uint64_t time,
                                event_kind kind,
                                std::uint64_t value,
                                std::uint16_t detail) noexcept {
  const event e = event::make(time, kind, value, detail);
  write_words(e.head, e.tail);
}

// Another function does what is rare, here and in run(): this one saves no registers.
void event_log::write(event_kind kind, std::uint64_t value, std::uint16_t detail) noexcept {
  if (kind_of_clock_ != event_clock::ticks) [[unlikely]]
    return write_otherwise(kind, value, detail);
  written_at_ = ticks();
  write_at(written_at_, kind, value, detail);
}

[[gnu::noinline]] void event_log::write_otherwise(event_kind kind,
                                                  std::uint64_t value,
                                                  std::uint16_t detail) noexcept {
  written_at_ = now();
  write_at(written_at_, kind, value, detail);
}

void event_log::write_too(event_kind kind, std::uint64_t value) noexcept {
  write_at(written_at_, kind, value, 0);
}

void event_log::write_place(const fiber_identity& f) noexcept {
  write_at(f.line, event_kind::place, reinterpret_cast<std::uintptr_t>(f.file), 0);
}

// A yield that found nobody else is no event: the fiber runs on. A callback has a stretch
// of its own.
inline void event_log::run_at(std::uint64_t t,
                              event_clock clock,
                              const fiber_identity& f,
                              bool is_runner,
                              departure of_last) noexcept {
  const std::uint64_t since = std::exchange(running_since_, t);
  if (of_last.how != left_by::none || since == none_runs || is_runner)
    write_at(t, event_kind::run, f.id, detail_of(of_last));
  // The place is that of the callback.
  if (is_runner) write_place(f);
  // The counters of two processors may differ a little.
  if (t > since) triggers.ran_for(t - since, clock);
}

void event_log::run(const fiber_identity& f, bool is_runner, departure of_last) noexcept {
  if (is_runner || kind_of_clock_ != event_clock::ticks) [[unlikely]]
    return run_otherwise(f, is_runner, of_last);
  run_at(ticks(), event_clock::ticks, f, false, of_last);
}

[[gnu::noinline]] void event_log::run_otherwise(const fiber_identity& f,
                                                bool is_runner,
                                                departure of_last) noexcept {
  run_at(now(), kind_of_clock_, f, is_runner, of_last);
}

void event_log::leave(const fiber_identity& last, departure how) noexcept {
  const std::uint64_t t = now();
  const std::uint64_t since = std::exchange(running_since_, none_runs);
  write_at(t, event_kind::leave, last.id, detail_of(how));
  if (t > since) triggers.ran_for(t - since, kind_of_clock_);
}

void event_log::start(const fiber_identity& f, std::uint8_t role) noexcept {
  write(event_kind::start, f.id, role);
  write_place(f);
  constexpr std::size_t in_event = 15;
  const std::size_t n = ::strnlen(f.name, sizeof f.name);
  for (std::size_t at = 0; at < n; at += in_event) {
    static_assert(std::endian::native == std::endian::little);  // the kind is the first byte
    char part[1 + in_event] = {static_cast<char>(event_kind::name)};
    std::memcpy(part + 1, f.name + at, std::min(in_event, n - at));
    std::uint64_t both[2];
    std::memcpy(both, part, sizeof both);
    write_words(both[0], both[1]);
  }
}

void event_log::fired(event_kind kind, std::uint16_t timer_kind, nanos late) noexcept {
  constexpr auto most = static_cast<nanos>(event::most);
  write(kind, static_cast<std::uint64_t>(std::clamp<nanos>(late, 0, most)), timer_kind);
  triggers.timer_late(late, kind_of_clock_);
}

std::size_t event_log::copy(event* out) const noexcept {
  if (slots_ == nullptr) return 0;
  // Pairs with the last store of write_words().
  const std::uint64_t end = written_.load(order::acquire);
  const std::uint64_t begin = end - std::min<std::uint64_t>(end, capacity());
  for (std::uint64_t i = begin; i < end; ++i) {
    const slot& s = slots_[i & mask_];
    // EL2. Pairs with EL1.
    out[i - begin] = {s.head.load(order::acquire), s.tail.load(order::acquire)};
  }
  // The slot after the last counted event may be half written.
  // Pairs with the last store of write_words().
  const std::uint64_t now = written_.load(order::acquire);
  const std::uint64_t kept = now + 1 - std::min<std::uint64_t>(now + 1, capacity());
  if (kept >= end) return 0;
  const std::uint64_t dropped = kept > begin ? kept - begin : 0;
  std::copy(out + dropped, out + (end - begin), out);
  return end - begin - dropped;
}

}  // namespace VIGIL_DETAIL
