// clock_hub: the wall clock and the boot clock of one runtime, and the timers on them.
//
// A deadline on one of these clocks is filed in the runtime's heap at its image, the
// instant at which the monotonic clock will have come as far as is missing. Clocks run
// alike between steps and suspends, so an image stays right until one of these; then
// each timer that is filed is told, and files itself anew. When it fires it reads its own
// clock, and waits again if its time has not come.
//
// The danger. A step may come while a timer computes its image.
//
// CK1 A timer files itself in this order: it counts itself as pending (SL1), becomes a
//     follower, reads the clocks, and files the image. The last three steps stand under
//     a lock of its own, which clock_changed() takes as well. So a step after the reading
//     finds the follower, and tells it once the image is filed. (A sleep has no such
//     lock: its wait is open before it becomes a follower, and being told ends it.)
// CK2 A follower is told with no lock held, since it takes locks of a lower rank. keep()
//     keeps it alive meanwhile.
//
// The hub is shared: by the runtime, and by timers that may outlive it.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/clocks/step_listener.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/clocks.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace VIGIL_DETAIL {

class dump_writer;

// A timer, or a sleep, that is filed at the image of its deadline.
class clock_follower {
 public:
  // Keeps the follower alive until clock_changed(); false if it needs not be told, or is
  // about to end. Called under the hub's lock.
  virtual bool keep() noexcept = 0;
  // A clock was stepped, or the machine has slept. Called after keep(), and ends it.
  // Returns false if there was no memory: it is then told again.
  virtual bool clock_changed() noexcept = 0;

  list_hook<clock_follower> among_followers;
  std::uint64_t told = 0;  // the last change that it was told of

 protected:
  clock_follower() = default;
  ~clock_follower() = default;
  clock_follower(const clock_follower&) = delete;
  clock_follower& operator=(const clock_follower&) = delete;
};

class clock_hub {
 public:
  explicit clock_hub(scheduler& s);

  // That of the runtime, made if it has none. Throws std::bad_alloc.
  static const std::shared_ptr<clock_hub>& of(scheduler& s);
  // The clock of a runtime, or of a thread that is in none (nullptr).
  static nanos now_in(scheduler* s, clock_kind kind) noexcept;

  nanos now(clock_kind kind) const noexcept;
  // The instant of the runtime's clock at which that clock will read `when`. Never too
  // early but for a step, and at most `never - 1`.
  nanos image(clock_kind kind, nanos when) const noexcept;

  // --- timers that are pending, whether a receiver waits for them or not
  // Throws as step_listener::begin() does.
  void begin_pending();
  void end_pending() noexcept;

  // --- followers
  void add(clock_follower& f) noexcept VIGIL_EXCLUDES(lock_);     // again: no effect
  void remove(clock_follower& f) noexcept VIGIL_EXCLUDES(lock_);  // the same
  // Tells all followers that a clock has changed; false if one had no memory.
  bool tell_all() noexcept VIGIL_EXCLUDES(lock_);

  // How often it has done so.
  std::uint64_t changes() const noexcept VIGIL_EXCLUDES(lock_);

  // Adds to what the clock reads, and tells nobody. Virtual time, and tests.
  void shift(clock_kind kind, nanos by) noexcept;

  step_listener& listener() noexcept { return listener_; }

  bool is_virtual() const noexcept { return virtual_; }

  timer_service& service() const noexcept { return service_; }

  std::uint32_t generation() const noexcept { return generation_; }

  void write(dump_writer& out) noexcept VIGIL_EXCLUDES(lock_);

 private:
  using follower_list = list<clock_follower, &clock_follower::among_followers>;

  nanos runtime_now() const noexcept;

  timer_service& service_;
  const std::uint32_t generation_;
  const bool virtual_;
  atomic<nanos> shift_[2]{};
  atomic<std::size_t> pending_{0};
  mutable spinlock lock_{lock_rank::clocks};
  // Those that were told of change number changes_ stand behind the others.
  follower_list followers_ VIGIL_GUARDED_BY(lock_);
  std::uint64_t changes_ VIGIL_GUARDED_BY(lock_) = 0;
  step_listener listener_;
};

// Counts a timer as pending until the end of the scope, unless it is committed.
class pending_mark {
 public:
  explicit pending_mark(clock_hub& hub) : hub_(&hub) { hub.begin_pending(); }

  ~pending_mark() {
    if (hub_ != nullptr) hub_->end_pending();
  }

  pending_mark(const pending_mark&) = delete;
  pending_mark& operator=(const pending_mark&) = delete;

  void commit() noexcept { hub_ = nullptr; }

 private:
  clock_hub* hub_;
};

// The distance, saturated.
inline nanos distance(nanos from, nanos to) noexcept {
  nanos d = 0;
  if (!__builtin_sub_overflow(to, from, &d)) return d;
  return to > from ? never : INT64_MIN;
}

}  // namespace VIGIL_DETAIL
