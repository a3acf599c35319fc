// Arming and stopping the timers of channels and callbacks.
#include "core/timer/timer_service.hpp"

#include <vigil/error.hpp>

namespace VIGIL_DETAIL {

bool timer_service::arm_at(runtime_timer& t, nanos deadline, bool parking) {
  if (intake* const own = owner_.intake_for(t.generation))
    return parts_->heap.arm(*own, t, deadline, parking);
  const lock_guard guard(owner_.outside);
  if (!is_of_this_run(t)) throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
  return arm_outside(t, deadline);
}

bool timer_service::stop(runtime_timer& t) noexcept {
  // This is the claim. The next arming acquires everything that was written before it.
  if (t.when.exchange(runtime_timer::idle) <= 0) return false;
  owner_.count_for(t.generation, timer_event::stopped);
  return true;
}

// Counts without count_for(): the change holds the lock that this would take.
bool timer_service::stop_counted(timer_record& t) noexcept {
  const keepalive::change change(keepalive_, t);
  if (t.when.exchange(runtime_timer::idle) <= 0) return false;
  if (is_of_this_run(t)) owner_.count(timer_event::stopped);
  return true;
}

// --- callbacks

namespace {

// SW2: a halted timer is idle, so only an arming that found it so looks again.
[[gnu::always_inline]] inline timer_service::armed after_arming(stop_waiters& stops,
                                                                timer_record& t,
                                                                bool was_pending) noexcept {
  using armed = timer_service::armed;
  if (was_pending) return armed::was_pending;
  if (!t.must_ask.load() || stops.lets_stand(t)) [[likely]]
    return armed::was_idle;
  return armed::held_back;
}

}  // namespace

// Not inlined: reset() is hot.
[[gnu::noinline]] timer_service::armed timer_service::reset_with_care(timer_record& t,
                                                                      nanos deadline,
                                                                      nanos now,
                                                                      intake* own) {
  if (t.must_ask.load() && !stop_waiters_.lets_arm(t)) return armed::held_back;
  bool before = false;
  {
    const keepalive::change change(keepalive_, t, own == nullptr);
    if (own == nullptr && !is_of_this_run(t)) {
      throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
    }
    if (deadline <= now && !t.is_periodic) {
      // Queues the callback instead of filing an entry.
      before = t.when.exchange(runtime_timer::clamp_deadline(deadline)) > 0;
      // ordering: made from a reference that the caller holds.
      t.references.fetch_add(1, order::relaxed);
      parts_->callbacks.push_soon(t, now);
      owner_.count(before ? timer_event::reset : timer_event::armed);
    } else if (own == nullptr) {
      before = arm_outside(t, deadline);
    } else {
      before = parts_->heap.arm(*own, t, deadline, false);
    }
  }
  return after_arming(stop_waiters_, t, before);
}

// `own`: the caller's intake; nullptr outside the timer's runtime.
[[gnu::always_inline]] inline timer_service::armed timer_service::reset(timer_record& t,
                                                                        nanos deadline,
                                                                        nanos now,
                                                                        intake* own) {
  const bool enters_heap = own != nullptr && deadline > now;
  if (!enters_heap || keepalive_.counts() || t.must_ask.load())
    return reset_with_care(t, deadline, now, own);
  return after_arming(stop_waiters_, t, parts_->heap.arm(*own, t, deadline, false));
}

timer_service::armed timer_service::reset_after(timer_record& t, nanos delay) {
  intake* const own = owner_.intake_for(t.generation);
  const nanos now = own != nullptr ? sched()->clock.now() : now_in(t.generation);
  return reset(t, saturating_add(now, delay), now, own);
}

timer_service::armed timer_service::reset_at(timer_record& t, nanos deadline) {
  return reset(t, deadline, now_in(t.generation), owner_.intake_for(t.generation));
}

// Caller: holds owner_.outside, and t's runtime is the present one.
bool timer_service::arm_outside(runtime_timer& t, nanos deadline) {
  heap_keeper& heap = parts_->heap;
  const bool was_pending = heap.arm(heap.shared_intake(), t, deadline, false);
  owner_.record_outside(was_pending ? timer_event::reset : timer_event::armed, deadline);
  return was_pending;
}

}  // namespace VIGIL_DETAIL
