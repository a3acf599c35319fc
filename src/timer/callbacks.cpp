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
  parts_->firing.open();
  try {
    parts_->runners.open();
  } catch (...) {
    parts_->firing.abort_open();
    throw;
  }
  owner_.run_begins();
}

// Closed first, told second: whatever looks at is_in_run() under a lock that
// run_ends() takes is either seen there or finds the run over.
void timer_service::run_ends() noexcept {
  owner_.run_ends();
  listeners_.tell_all();
}

void timer_service::abort_open() noexcept {
  run_ends();
  parts_->runners.abort_open();
  parts_->firing.abort_open();
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
  parts_->runners.end();
  parts_->firing.end();
}

}  // namespace vigil::internal
