// Arming and stopping: of the timers of waits, of channels and of callbacks.
#include "timer/timer_service.hpp"

#include <vigil/error.hpp>

#include <thread>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

bool timer_service::arm_at(runtime_timer& t, nanos deadline, bool parking) {
  if (intake* const own = owner_.intake_for(t.generation))
    return parts_->heap.arm(*own, t, deadline, parking);
  const lock_guard guard(owner_.outside);
  if (!is_of_this_run(t)) throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
  return parts_->heap.arm(parts_->heap.shared_intake(), t, deadline, false);
}

bool timer_service::stop(runtime_timer& t) noexcept {
  // The claim. The next arming acquires all that was written before this one.
  if (t.when.exchange(runtime_timer::idle) <= 0) return false;
  if (is_of_this_run(t)) owner_.count(timer_event::stopped);
  return true;
}

bool timer_service::stop_counted(timer_record& t) noexcept {
  const keepalive::change change(keepalive_, t);
  return stop(static_cast<runtime_timer&>(t));
}

// --- callbacks

bool timer_service::reset_after(timer_record& t, nanos delay) {
  intake* const own = owner_.intake_for(t.generation);
  const nanos now = own != nullptr ? sched()->clock.now() : now_in(t.generation);
  return reset(t, saturating_add(now, delay), now, own);
}

bool timer_service::reset_at(timer_record& t, nanos deadline) {
  return reset(t, deadline, now_in(t.generation), owner_.intake_for(t.generation));
}

// `own`: the caller's intake; nullptr outside the timer's runtime.
bool timer_service::reset(timer_record& t, nanos deadline, nanos now, intake* own) {
  const keepalive::change change(keepalive_, t, own == nullptr);
  if (own == nullptr && !is_of_this_run(t)) {
    throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
  }
  if (deadline <= now && !t.is_periodic) return run_soon(t, deadline, now);
  heap_keeper& heap = parts_->heap;
  return heap.arm(own != nullptr ? *own : heap.shared_intake(), t, deadline, false);
}

// Due when armed: it never enters the heap.
bool timer_service::run_soon(timer_record& t, nanos deadline, nanos now) {
  const bool before = t.when.exchange(runtime_timer::clamp_deadline(deadline)) > 0;
  // ordering: made from a reference that the caller holds.
  t.references.fetch_add(1, relaxed);
  timer_record* due = &t;
  parts_->callbacks.push_due(&due, 1, now);
  owner_.count(before ? timer_event::reset : timer_event::armed);
  return before;
}

// --- the deadlines of waits

void timer_service::arm(waiter& w, ticket t, nanos deadline) {
  worker& here = *current_worker();
  runtime_timer* record = w.timer;
  if (record == nullptr) w.timer = record = make_wait_record(*this, generation(), w);
  record->wait.which = t;
  parts_->heap.arm(*here.intake, *record, deadline, true);
}

void timer_service::disarm(waiter& w) noexcept {
  runtime_timer& record = *w.timer;
  nanos seen = record.when.load();
  while (seen > 0) {
    if (record.when.compare_exchange_weak(seen, runtime_timer::idle)) {
      owner_.count(timer_event::stopped);
      return;
    }
  }
  // The timer fiber is touching the waiter: a few instructions, unless its
  // thread has just lost the processor.
  int spins = 0;
  // Pairs with the end of fire_wait().
  while (record.when.load(acquire) == runtime_timer::firing) {
    if (++spins < 64) {
      cpu_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void timer_service::forget(waiter& w) noexcept {
  if (w.timer == nullptr) return;
  drop_reference(*std::exchange(w.timer, nullptr));
}

}  // namespace vigil::inline VIGIL_ABI::detail
