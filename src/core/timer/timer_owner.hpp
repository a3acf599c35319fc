// timer_owner: the runtime whose timers a service keeps now, identified by a number, its
// generation (the argument `run` of the functions below).
//
// The danger. A handle may outlive its runtime, and another runtime may use the service
// by then.
//
// The rule. A timer carries the generation of its runtime. A thread that runs none of
// that runtime's fibers checks, under `outside`, that the runtime is the present one. A
// runtime that ends changes the generation under that lock, so it cannot end while an
// outside thread arms a timer of it.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/timer/intake.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class timer_owner {
 public:
  // `events`: of the threads that are not its workers; nullptr: nothing is recorded.
  // Caller: nothing of an earlier runtime is under way.
  void begin(scheduler& s, shared_event_log* events) noexcept;
  // From here on no outside thread arms or stops a timer of this runtime.
  void end() noexcept VIGIL_EXCLUDES(outside);

  // The scheduler that uses the service; nullptr if none does.
  // ordering: written before the runtime's first fiber and after its last;
  // others only compare it with the scheduler they run on.
  scheduler* sched() const noexcept { return sched_.load(order::relaxed); }

  void forget_sched() noexcept { sched_.store(nullptr); }

  std::uint32_t generation() const noexcept { return generation_.load(); }

  bool is_this_run(std::uint32_t run) const noexcept {
    // Pairs with the increment in end().
    return generation_.load(order::acquire) == run;
  }

  void run_begins() noexcept { in_run_.store(true); }

  void run_ends() noexcept { in_run_.store(false); }

  // Whether a run of that runtime is under way. Once another runtime has taken the
  // service over, in_run_ is that one's, so the generation is looked at last.
  bool is_in_run(std::uint32_t run) const noexcept { return in_run_.load() && is_this_run(run); }

  // The time on that runtime's clock, or on the monotonic clock if the runtime is gone.
  nanos now_in(std::uint32_t run) noexcept VIGIL_EXCLUDES(outside);

  // The calling worker's intake; nullptr on other threads and in other runtimes.
  intake* own_intake() const noexcept {
    worker* const w = current_worker();
    return w != nullptr && &w->sched == sched() ? w->own_intake : nullptr;
  }

  // The same, but nullptr if `run` is an earlier runtime.
  intake* intake_for(std::uint32_t run) const noexcept {
    intake* const own = own_intake();
    return own != nullptr && is_this_run(run) ? own : nullptr;
  }

  // Counts an event, in the calling worker's intake if there is one.
  void count(timer_event event) noexcept {
    if (intake* const in = own_intake()) return in->note(event);
    // ordering: a statistic.
    counts_[static_cast<std::size_t>(event)].fetch_add(1, order::relaxed);
    record_outside(event);
  }

  // Tells the flight recorder of an act of a thread outside the workers.
  void record_outside(timer_event event, nanos deadline = 0) noexcept;

  // The same for a timer of that runtime; counts nothing if the runtime is gone.
  void count_for(std::uint32_t run, timer_event event) noexcept VIGIL_EXCLUDES(outside);

  // The events counted by all threads that are not the runtime's workers.
  std::uint64_t counted_outside(timer_event event) const noexcept {
    // ordering: a statistic.
    return counts_[static_cast<std::size_t>(event)].load(order::relaxed);
  }

  // Held by threads that are not the runtime's workers.
  spinlock outside{lock_rank::timer_outside};

 private:
  atomic<scheduler*> sched_{nullptr};
  atomic<shared_event_log*> events_{nullptr};
  atomic<std::uint32_t> generation_{1};
  atomic<bool> in_run_{false};
  atomic<std::uint64_t> counts_[timer_events]{};
};

}  // namespace VIGIL_DETAIL
