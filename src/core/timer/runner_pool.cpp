#include "core/timer/runner_pool.hpp"

#include "core/sched/call/park.hpp"
#include "core/sched/worker/system_fiber.hpp"
#include "core/sched/worker/unhandled.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace VIGIL_DETAIL {

fiber& runner_pool::make_runner() {
  return make_system_fiber<&runner_pool::body>(with_.sched, "callbacks", fiber_role::runner, *this);
}

void runner_pool::open() {
  ending_.store(false);
  lacking_.store(0);
  // One runner is there from the start, so that a callback can always run.
  fiber& reserved = make_runner();
  const lock_guard guard(lock_);
  idle_.push_back(reserved);
}

void runner_pool::abort_open() noexcept {
  fiber* reserved = nullptr;
  {
    const lock_guard guard(lock_);
    reserved = idle_.pop_front();
  }
  retire_system_fiber(*reserved);
}

void runner_pool::end() noexcept {
  ending_.store(true);
  fiber_chain idle;
  {
    const lock_guard guard(lock_);
    idle.splice_back(idle_);
  }
  while (fiber* const f = idle.pop_front())
    ready(*f);
}

fiber* runner_pool::take() noexcept {
  if (!with_.callbacks.has_one(startable())) return nullptr;
  {
    const lock_guard guard(lock_);
    // Not one that is still on its stack: nobody but end() readies those in idle_, so a
    // parked one stays so. Pairs with PK1 in worker::after().
    const fiber* const f = idle_.front();
    if (f != nullptr && f->park_state.load(order::acquire) == park_word::parked)
      return idle_.pop_front();
  }
  std::size_t lacking = SIZE_MAX;
  try {
    return &make_runner();
  } catch (const limit_reached&) {
    lacking = with_.sched.settings().stack_size;
  } catch (...) {  // no memory
  }
  // If a runner or room has just come free, the worker looks again.
  const lock_guard guard(lock_);
  if (idle_.empty()) lacking_.store(lacking);
  return nullptr;
}

void runner_pool::body() {
  fiber& self = *current_fiber();
  for (;;) {
    // Counted before the look at startable(): either this sees the end, or the main
    // fiber, which looks at the count after it has come to its end, waits for this turn.
    with_.sched.fibers.count_alive(1);
    callback_queue::round round = callback_queue::new_round;
    for (std::size_t i = 0; i < callbacks_per_turn; ++i) {
      const callback_queue::those may = startable();
      if (may == callback_queue::those::none) break;
      nanos due_until = 0;
      timer_record* const t = with_.callbacks.pop(may, due_until, round);
      if (t == nullptr) break;
      self.callback.timer.store(t, order::relaxed);  // ordering: its own word, and the dump's
      run(self, *t, due_until);
    }
    with_.sched.fibers.count_alive(-1);
    lock_.lock();
    if (ending_.load() || idle_.size() >= most_idle) {
      lock_.unlock();
      return;
    }
    idle_.push_back(self);
    if (lacking_.exchange(0) != 0) with_.sched.board.callbacks_added();
    lock_.unlock();
    park(wait_reason::idle_runner);
    if (ending_.load()) return;
  }
}

// The deadline that is in force while the callback runs that is due at `deadline`. A
// ticking one keeps its phase: it adds as many periods as put it after now.
nanos runner_pool::deadline_after(const timer_record& t, nanos deadline) const noexcept {
  if (!t.is_periodic) return runtime_timer::idle;
  if (t.from_end) return runtime_timer::latest;
  const nanos period = t.period.load();
  const nanos late = std::max<nanos>(0, with_.sched.clock.now() - deadline);
  nanos steps = 0;
  if (__builtin_mul_overflow(period, 1 + late / period, &steps)) steps = never;
  return std::min(saturating_add(deadline, steps), runtime_timer::latest);
}

// Counts the run before it tries the claim, so a caller that stops the timer, finds the
// claim taken and then looks for runs sees the one that is coming. The next deadline is
// in force before the call, so stop() and reset() work in it.
void runner_pool::run(fiber& self, timer_record& t, nanos due_until) {
  nanos deadline = t.when.load();
  // A later deadline has an entry of its own; a stopped timer has none.
  while (deadline > 0 && deadline <= due_until) {
    const nanos next = deadline_after(t, deadline);
    // The timer may have been stopped, and its last handle dropped, meanwhile.
    const auto begun = t.begin_run();
    if (begun == timer_record::begun::no) break;
    if (begun == timer_record::begun::after_lift) [[unlikely]]
      with_.stops.note_run(self, t);
    bool claimed = false;
    {
      // The runner itself holds the program by now.
      const keepalive::change change(with_.kept_alive, t);
      if (t.is_periodic) with_.heap.draw_tie(t);
      claimed = t.when.compare_exchange_strong(deadline, next);
    }
    if (claimed) {
      with_.owner.count(timer_event::fired);
      if (t.is_periodic) with_.owner.count(timer_event::armed);
      call(self, t);
      if (t.from_end) count_from_end(t);
    }
    with_.stops.end_run(t);
    if (claimed) break;
  }
  callback_is_over(self);
  if (t.is_periodic) {
    with_.heap.refile_periodic(t);
  } else {
    release_record(t);
  }
}

void runner_pool::count_from_end(timer_record& t) noexcept {
  nanos expected = runtime_timer::latest;
  if (t.when.load() == expected) with_.heap.draw_tie(t);
  const nanos next = saturating_add(with_.sched.clock.now(), t.period.load());
  t.when.compare_exchange_strong(expected, std::min(next, runtime_timer::latest));
}

// Without on_unhandled an uncaught exception ends the program where it was thrown:
// run_open() of fiber_entry.cpp. So no function from here to the bottom of the stack is
// noexcept.
void runner_pool::call(fiber& self, timer_record& t) {
  with_.sched.board.cover_owed();
  worker& here = *current_worker();
  here.share_when_due();
  here.new_stretch(t.made_at.file, t.made_at.line);
  if (self.ending.on_unhandled == nullptr) {
    call_open(self, t);
  } else {
    call_reporting(self, t);
  }
  self.destroy_locals();
}

void runner_pool::call_open(fiber& self, timer_record& t) {
  try {
    t.call();
  } catch (const stopped&) {
  } catch (const cancelled& e) {
    // Not rethrown: run_open() would judge it again, perhaps after a shutdown has begun.
    if (!with_.sched.state.ends_silently(self, e)) report_finally(self, std::current_exception());
  } catch (const deadlock& e) {
    if (!with_.sched.state.ends_silently(e)) report_finally(self, std::current_exception());
  }
}

void runner_pool::call_reporting(fiber& self, timer_record& t) noexcept {
  try {
    call_open(self, t);
  } catch (...) {
    report_finally(self, std::current_exception());
  }
}

// Cleans up after a callback. Its captures may have died here as well, and their
// destructors may have deferred something, which counts as deferred by the callback.
// Caller: holds a reference to the record.
void runner_pool::callback_is_over(fiber& self) noexcept {
  self.destroy_locals();
  if (self.deferred != nullptr) [[unlikely]]
    with_.callbacks.push_deferred(self);
  self.stops_thrown = 0;
  self.end_guards();
  self.set_name("callbacks");
  self.callback.timer.store(nullptr, order::relaxed);  // ordering: as above
  current_worker()->new_stretch("vigil", 0);           // of no callback
}

}  // namespace VIGIL_DETAIL
