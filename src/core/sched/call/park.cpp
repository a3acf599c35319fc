#include "core/sched/call/park.hpp"

#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "core/sched/worker/park_check.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/worker.hpp"

#include <vigil/error.hpp>

#include <limits>

namespace VIGIL_DETAIL {

namespace {

void park_on(fiber& self, awaited what) noexcept {
  about_to_leave(self, what.reason);
  // ordering: present_wait; published by fiber::has_left().
  self.present.object.store(what.object, order::relaxed);
  self.present.reason.store(what.reason, order::relaxed);
  current_worker()->park();
  self.present.reason.store(wait_reason::none, order::relaxed);  // ordering: as above
}

// Parks with an entry under a node. A function of its own, so that the frames of other
// waits have no room for the entry.
[[gnu::noinline]] void park_cancellable(fiber& self, ticket t, awaited what, cancel_node& node) {
  queued_waiter entry(open_wait{&self.own_waiter, t});
  if (!node.begin_wait(entry)) return;
  self.present.ends_with.store(&node.made_at, order::relaxed);  // ordering: present_wait
  park_on(self, what);
  self.present.ends_with.store(nullptr, order::relaxed);  // ordering: as above
  node.end_wait(entry);
}

}  // namespace

outcome wait(fiber& self, ticket t, awaited what, const wait_limit& limit, bool stoppable) {
  scheduler& sched = *self.sched;
  waiter& w = self.own_waiter;
  // The clock is read before the deadline is made, and exactly: an older reading would
  // make the wait shorter. For an absolute deadline only the dump needs the time.
  const nanos now = limit.is_relative() ? sched.clock.now() : sched.clock.coarse_now();
  const nanos deadline = limit.as_deadline(now);
  // ordering: for the dump; nothing hangs on it.
  self.present.since.store(now, order::relaxed);
  const bool timed = deadline != never;
  if (timed) {
    self.present.until.store(deadline, order::relaxed);  // ordering: present_wait
    try {
      sched.timers().arm(w, t, deadline);
    } catch (...) {
      self.present.until.store(never, order::relaxed);  // ordering: present_wait
      if (w.claim(t, outcome::cancelled)) throw;
      // The wait has just been ended: it needs no deadline any more.
      park_on(self, what);
      return w.outcome();
    }
  }
  // The stop's flag is set before it looks for an open ticket; the ticket was
  // opened before this look. One of the two sees the other.
  if (!stoppable || !sched.state.must_stop(self) || !w.claim(t, outcome::stopped)) {
    if (limit.cancelled_by == nullptr) {
      park_on(self, what);
    } else {
      park_cancellable(self, t, what, *limit.cancelled_by);
    }
  }
  const outcome ended = w.outcome();
  if (timed) {
    if (ended != outcome::timeout) sched.timers().disarm(w);
    self.present.until.store(never, order::relaxed);  // ordering: present_wait
  }
  return ended;
}

void check_may_park(const fiber& self) noexcept {
  if (self.guards.no_parks != 0) {
    fatal(
        "%s is about to wait under this_fiber::no_park: whatever it holds (a "
        "std::mutex, the address of a thread_local, errno) must be let go first, and whatever "
        "called it (a strand, OpenSSL for a callback) must be returned to",
        fiber_words(self.identity).text());
  }
}

void park(awaited what) noexcept {
  fiber& self = *current_fiber();
  // ordering: for the dump; nothing hangs on it.
  self.present.since.store(0, order::relaxed);
  park_on(self, what);
}

void ready(fiber& f, run_order when) noexcept {
  // Pairs with PK1 in worker::after(): one of the two queues the fiber.
  if (f.park_state.exchange(park_word::notified, order::acq_rel) == park_word::parked) {
    f.sched->make_runnable(f, when);
  }
}

namespace {

// Counts `stopped` and `deadlock` together: how often each was swallowed is not known.
void count_throw(fiber& self) {
  constexpr std::uint16_t patience = 1000;  // with a fiber that swallows the exception
  if (++self.stops_thrown <= patience) return;
  fatal(
      "%s has swallowed vigil::stopped, or vigil::deadlock, %u times: a catch that "
      "takes them, as catch (...) does, must rethrow or end the fiber, or the shutdown never ends",
      fiber_words(self.identity).text(),
      static_cast<unsigned>(patience));
}

}  // namespace

void throw_deadlock(fiber& self) {
  count_throw(self);
  throw deadlock(
      "vigil: deadlock: this wait for a lock can never end, nor can any other wait; the lock was "
      "not taken; the dump has been written to standard error");
}

void throw_stopped(fiber& self) {
  count_throw(self);
  throw stopped();
}

void waiter::deliver(run_order when) noexcept {
  switch (kind_) {
    case kind::of_fiber:
      ready(*static_cast<fiber*>(owner_), when);
      break;
    case kind::of_thread:
      static_cast<note*>(owner_)->wake();
      break;
    case kind::of_coroutine:
      resume_(owner_);
      break;
  }
}

void wake_list::deliver_together() noexcept {
  const worker* const on = current_worker();
  fiber_chain here;
  while (waiter* const w = claimed_.pop_front()) {
    if (on != nullptr && w->type() == waiter::kind::of_fiber && w->as_fiber().sched == &on->sched) {
      here.push_back(w->as_fiber());
    } else {
      w->deliver(run_order::in_order);
    }
  }
  if (!here.empty()) here.front()->sched->ready_all(here);
}

}  // namespace VIGIL_DETAIL
