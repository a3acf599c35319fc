// The callbacks of after_func and every: queued by the timer fiber, run by
// runner fibers.
//
// A due callback is only queued: it is still pending until its runner, right
// before the call, takes the claim (P4). A queue with something in it is work
// like a ready fiber: a worker with a free turn takes a runner from the pool
// and enters it. A runner goes on with the next callback while there are any,
// within a bound; one whose callback parks keeps its stack, and the worker
// takes another runner for the rest. So short callbacks share one runner, and a
// slow one delays nobody.
#include "sched/park.hpp"
#include "timer/system_fiber.hpp"
#include "timer/timer_service.hpp"

#include <vigil/error.hpp>

#include <iterator>
#include <utility>

namespace vigil::internal {

// --- arming from the API

bool timer_service::reset_after(timer_record& t, nanos delay) {
  intake* const own = owner_.own_intake();
  const bool here = own != nullptr && is_of_this_run(t);
  const nanos now = here ? sched()->clock.now() : now_in(t.generation);
  return reset(t, saturating_add(now, delay), now, here ? own : nullptr);
}

bool timer_service::reset_at(timer_record& t, nanos deadline) {
  intake* const own = owner_.own_intake();
  const bool here = own != nullptr && is_of_this_run(t);
  return reset(t, deadline, now_in(t.generation), here ? own : nullptr);
}

// `own`: the caller's intake, nullptr outside the timer's runtime.
bool timer_service::reset(timer_record& t, nanos deadline, nanos now, intake* own) {
  const keepalive::change change(keepalive_, t, own == nullptr);
  if (own == nullptr && !is_of_this_run(t)) {
    throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
  }
  if (deadline <= now && !t.is_periodic) return run_soon(t, deadline, now);
  return own != nullptr ? arm_here(*own, t, deadline, false) : arm_shared(t, deadline);
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

// --- the runners

void timer_service::open() {
  ending_.store(false);
  runners_wanting_.store(false);
  parts_->firing.open();
  try {
    // One runner is there from the start, so that a callback can always run.
    fiber& reserved = make_runner();
    const lock_guard guard(runners_lock_);
    idle_runners_.push_back(reserved);
  } catch (...) {
    parts_->firing.abort_open();
    throw;
  }
  owner_.run_begins();
}

fiber& timer_service::make_runner() {
  return make_system_fiber<&timer_service::runner_body>(
      *sched(), "callbacks", fiber_role::runner, *this);
}

// Closed first, told second: whatever looks at is_in_run() under a lock that
// run_ends() takes is either seen there or finds the run over.
void timer_service::run_ends() noexcept {
  owner_.run_ends();
  listeners_.tell_all();
}

void timer_service::abort_open() noexcept {
  run_ends();
  fiber* reserved = nullptr;
  {
    const lock_guard guard(runners_lock_);
    reserved = idle_runners_.pop_front();
  }
  retire_system_fiber(*sched(), *reserved);
  parts_->firing.abort_open();
}

fiber* timer_service::take_runner() noexcept {
  {
    const lock_guard guard(runners_lock_);
    if (fiber* const f = idle_runners_.pop_front()) return f;
  }
  try {
    return &make_runner();
  } catch (...) {
    // No stack: the callbacks wait for the next runner that comes free.
    const lock_guard guard(runners_lock_);
    if (!idle_runners_.empty()) return idle_runners_.pop_front();
    runners_wanting_.store(true);
    return nullptr;
  }
}

void timer_service::runner_body() {
  fiber& self = *current_fiber();
  for (;;) {
    // Counted before the look at stopping(): either this sees the stop, or the
    // main fiber, which looks at the count after it, waits for this turn.
    sched()->count_alive(1);
    callback_queue::round round = callback_queue::new_round;
    for (std::size_t i = 0; i < callbacks_per_turn && !sched()->stopping(); ++i) {
      nanos due_until = 0;
      timer_record* const t = parts_->callbacks.pop(due_until, round);
      if (t == nullptr) break;
      self.callback.store(t, relaxed);  // ordering: its own word, and the dump's
      if (t->is_periodic) {
        run_periodic(self, *t, due_until);
      } else {
        run_once(self, *t, due_until);
      }
    }
    sched()->count_alive(-1);
    runners_lock_.lock();
    if (ending_.load() || idle_runners_.size() >= idle_runners_kept) {
      runners_lock_.unlock();
      return;
    }
    idle_runners_.push_back(self);
    const bool wanted = runners_wanting_.exchange(false);
    if (wanted) sched()->work_added();
    park(wait_reason::idle_runner, runners_lock_);
  }
}

// The run is counted before the claim is tried: who stops the timer, finds the
// claim taken and then looks, sees the run that is coming.
void timer_service::run_once(fiber& self, timer_record& t, nanos due_until) {
  nanos deadline = t.when.load();
  // A later deadline has an entry of its own; a stopped one has nothing.
  while (deadline > 0 && deadline <= due_until && t.begin_run()) {
    bool claimed = false;
    {
      const keepalive::change change(keepalive_, t);  // the runner itself holds the program by now
      claimed = t.when.compare_exchange_strong(deadline, runtime_timer::idle);
    }
    if (claimed) {
      owner_.count(timer_event::fired);
      call(self, t);
    }
    stop_waiters_.end_run(t);
    if (claimed) break;
  }
  callback_is_over(self);
  drop_reference(t);
}

void timer_service::run_periodic(fiber& self, timer_record& t, nanos due_until) {
  nanos deadline = t.when.load();
  while (deadline > 0 && deadline <= due_until) {
    const nanos period = t.period.load();
    nanos next = runtime_timer::latest;
    if (!t.from_end) {
      // The phase is kept: as many periods further as puts it after now.
      const nanos late = std::max<nanos>(0, sched()->clock.now() - deadline);
      nanos steps = 0;
      if (__builtin_mul_overflow(period, 1 + late / period, &steps)) steps = never;
      next = std::min(saturating_add(deadline, steps), runtime_timer::latest);
    }
    // Not if it was stopped, and its last handle dropped, meanwhile.
    if (!t.begin_run()) break;
    // Next in force before the call, so that stop() and reset() inside it work.
    const bool claimed = t.when.compare_exchange_strong(deadline, next);
    if (claimed) {
      owner_.count(timer_event::fired);
      owner_.count(timer_event::armed);
      call(self, t);
      if (t.from_end) {
        nanos expected = runtime_timer::latest;
        t.when.compare_exchange_strong(
            expected,
            std::min(saturating_add(sched()->clock.now(), t.period.load()), runtime_timer::latest));
      }
    }
    stop_waiters_.end_run(t);
    if (claimed) break;
  }
  callback_is_over(self);
  parts_->heap.refile_periodic(t);
}

// Without on_unhandled an exception that nobody catches ends the program where it
// was thrown: scheduler::run_open(). So no function from here to the bottom of the
// stack is noexcept.
void timer_service::call(fiber& self, timer_record& t) {
  self.file = t.made_at.file;
  self.line = t.made_at.line;
  sched()->cover_owed();
  current_worker()->new_stretch();
  if (self.on_unhandled == nullptr) {
    call_open(self, t);
  } else {
    call_reporting(self, t);
  }
  self.destroy_locals();
}

void timer_service::call_open(fiber& self, timer_record& t) {
  try {
    t.call();
  } catch (const stopped&) {
  } catch (const cancelled& e) {
    // Not thrown on: run_open() would judge it again, after a shutdown has begun perhaps.
    if (!sched()->ends_silently(self, e)) sched()->report_finally(self, std::current_exception());
  } catch (const deadlock& e) {
    if (!sched()->ends_silently(e)) sched()->report_finally(self, std::current_exception());
  }
}

void timer_service::call_reporting(fiber& self, timer_record& t) noexcept {
  try {
    t.call();
  } catch (const stopped&) {
  } catch (const cancelled& e) {
    if (!sched()->ends_silently(self, e)) sched()->report_finally(self, std::current_exception());
  } catch (const deadlock& e) {
    if (!sched()->ends_silently(e)) sched()->report_finally(self, std::current_exception());
  } catch (...) {
    sched()->report_finally(self, std::current_exception());
  }
}

// Its captures may have died here as well, which may have called anything. What
// they defer is deferred by it. Caller: holds a reference to the record.
void timer_service::callback_is_over(fiber& self) noexcept {
  self.destroy_locals();
  if (self.deferred != nullptr) [[unlikely]]
    parts_->callbacks.push_deferred(self);
  self.stops_thrown = 0;
  self.end_guards();
  current_worker()->new_stretch();
  self.set_name("callbacks");
  self.callback.store(nullptr, relaxed);  // ordering: as above
  self.file = "vigil";
  self.line = 0;
}

// --- the end

bool timer_service::discard(timer_record& t) noexcept {
  if (!t.begin_run()) return false;
  const bool prevented = stop(t);
  stop_waiters_.end_run(t);
  return prevented;
}

namespace {

class nothing_more final : public runtime_timer::refire {
 public:
  bool at(nanos) noexcept override { return false; }
};

}  // namespace

void timer_service::discard_callbacks() noexcept {
  nanos ignored = 0;
  for (;;) {
    callback_queue::round round = callback_queue::new_round;
    timer_record* const t = parts_->callbacks.pop(ignored, round);
    if (t == nullptr) break;
    if (t->filed.load() == runtime_timer::held) {
      t->filed.store(runtime_timer::nothing);
      parts_->heap.give_up_slot();
    }
    discard(*t);
    drop_reference(*t);
  }
  for (;;) {
    heap_entry gone[64];
    const std::size_t n = parts_->heap.take_any(gone, std::size(gone));
    if (n == 0) return;
    for (std::size_t i = 0; i < n; ++i) {
      runtime_timer& t = *gone[i].timer;
      nanos key = gone[i].key;
      t.filed.compare_exchange_strong(key, runtime_timer::nothing);
      if (t.kind == timer_kind::go_func) {
        discard(static_cast<timer_record&>(t));
      } else if (stop(t) && t.kind == timer_kind::send_time) {
        nothing_more last;
        t.send.function(t.send.argument, never, last);
      }
      drop_reference(t);
    }
  }
}

void timer_service::end_fibers() noexcept {
  run_ends();
  ending_.store(true);
  fiber_chain idle;
  {
    const lock_guard guard(runners_lock_);
    idle.splice_back(idle_runners_);
  }
  while (fiber* const f = idle.pop_front())
    ready(*f);
  parts_->firing.end();
}

}  // namespace vigil::internal
