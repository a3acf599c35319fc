// timer_owner: the runtime whose timers a service keeps now, by a number.
//
// The danger. A handle outlives its runtime, and another runtime uses the service by
// then.
//
// The rule. A timer has the number of its runtime. A thread that runs none of that
// runtime's fibers looks, under `outside`, whether it is the present one. A runtime that
// ends changes the number under that lock, so none ends while a thread from outside arms
// a timer of it.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/scheduler.hpp"
#include "timer/intake.hpp"

#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

class timer_owner {
 public:
  // Caller: nothing of an earlier runtime goes on.
  void begin(scheduler& s) noexcept;
  // From here on no thread outside arms or stops anything of this runtime.
  void end() noexcept VIGIL_EXCLUDES(outside);

  // nullptr: none uses the service.
  // ordering: written before the runtime's first fiber and after its last;
  // others only compare it with the scheduler they run on.
  scheduler* sched() const noexcept { return sched_.load(relaxed); }

  void forget_sched() noexcept { sched_.store(nullptr); }

  std::uint32_t generation() const noexcept { return generation_.load(); }

  bool is_this_run(std::uint32_t run) const noexcept {
    // Pairs with the increment in end().
    return generation_.load(acquire) == run;
  }

  void run_begins() noexcept { in_run_.store(true); }

  void run_ends() noexcept { in_run_.store(false); }

  // Whether a run of that runtime is under way. When another runtime has taken the
  // service over, in_run_ is that one's: so the generation is looked at last.
  bool is_in_run(std::uint32_t run) const noexcept { return in_run_.load() && is_this_run(run); }

  // Now on the clock of that runtime, the monotonic one if it is gone.
  nanos now_in(std::uint32_t run) noexcept VIGIL_EXCLUDES(outside);

  // That of the calling worker; nullptr on other threads and in other runtimes.
  intake* own_intake() const noexcept {
    worker* const w = current_worker();
    return w != nullptr && &w->sched == sched() ? w->intake : nullptr;
  }

  // The same, nullptr as well if that runtime is an earlier one.
  intake* intake_for(std::uint32_t run) const noexcept {
    intake* const own = own_intake();
    return own != nullptr && is_this_run(run) ? own : nullptr;
  }

  // Where the calling thread counts.
  void count(timer_event what) noexcept;

  // Counted by all threads that are not the runtime's workers.
  std::uint64_t counted_outside(timer_event what) const noexcept {
    // ordering: a statistic.
    return counts_[static_cast<std::size_t>(what)].load(relaxed);
  }

  std::uint64_t pending_outside() const noexcept {
    return counted_outside(timer_event::armed) - counted_outside(timer_event::stopped) -
           counted_outside(timer_event::fired);
  }

  // Held by threads that are not the runtime's workers.
  spinlock outside{lock_rank::timer_outside};

 private:
  atomic<scheduler*> sched_{nullptr};
  atomic<std::uint32_t> generation_{1};
  atomic<bool> in_run_{false};
  atomic<std::uint64_t> counts_[timer_events]{};
};

}  // namespace vigil::inline VIGIL_ABI::detail
