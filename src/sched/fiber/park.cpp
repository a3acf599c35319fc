#include "sched/fiber/park.hpp"

#include "sched/fiber/written_name.hpp"
#include "sched/scheduler.hpp"
#include "sched/worker.hpp"

#include <vigil/error.hpp>

#include <limits>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

void park_on(fiber& self, wait_reason reason, spinlock* lock) noexcept {
  if (self.deferred != nullptr) [[unlikely]]
    self.sched->timers().release_deferred(self);
  // ordering: the dump's fields; nothing hangs on them.
  self.reason.store(reason, relaxed);
  current_worker()->leave_to(after_switch::park, lock);
  self.reason.store(wait_reason::none, relaxed);  // ordering: as above
}

// Parks with an entry under a node. Apart, so that other waits have no room for
// the entry in their frames.
[[gnu::noinline]] void park_cancellable(fiber& self,
                                        ticket t,
                                        wait_reason why,
                                        cancel_node& node,
                                        spinlock* lock) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  queued_waiter entry(open_wait{&self.self, t});
  if (!node.begin_wait(entry)) {
    if (lock != nullptr) lock->unlock();
    return;
  }
  self.waits_cancellable = true;
  park_on(self, why, lock);
  self.waits_cancellable = false;
  node.end_wait(entry);
}

outcome wait_within(fiber& self,
                    ticket t,
                    wait_reason why,
                    const wait_limit& limit,
                    bool stoppable,
                    spinlock* lock) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  scheduler& sched = *self.sched;
  waiter& w = self.self;
  // The clock is read before the deadline is made: reading it later could only make
  // the wait longer, an older reading would make it shorter.
  const nanos now = limit.is_relative() ? sched.clock.now() : sched.clock.coarse_now();
  const nanos deadline = limit.as_deadline(now);
  // ordering: the dump's fields; nothing hangs on them.
  self.waiting_since.store(now, relaxed);
  const bool timed = deadline != never;
  if (timed) {
    self.waiting_until.store(deadline, relaxed);  // ordering: as above
    try {
      sched.timers().arm(w, t, deadline);
    } catch (...) {
      self.waiting_until.store(never, relaxed);  // ordering: the dump's field
      if (w.claim(t, outcome::cancelled)) {
        if (lock != nullptr) lock->unlock();
        throw;
      }
      // Somebody has just ended the wait: it needs no deadline any more.
      park_on(self, why, lock);
      return w.outcome();
    }
  }
  // The stop's flag is set before it looks for an open ticket; the ticket was
  // opened before this look. One of the two sees the other.
  if (stoppable && sched.state.must_stop(self) && w.claim(t, outcome::stopped)) {
    if (lock != nullptr) lock->unlock();
  } else if (limit.cancelled_by == nullptr) {
    park_on(self, why, lock);
  } else {
    park_cancellable(self, t, why, *limit.cancelled_by, lock);
  }
  const outcome ended = w.outcome();
  if (timed) {
    if (ended != outcome::timeout) sched.timers().disarm(w);
    self.waiting_until.store(never, relaxed);  // ordering: the dump's field
  }
  return ended;
}

}  // namespace

void check_may_park(const fiber& self) noexcept {
  if (self.no_parks != 0) {
    fatal(
        "fiber %llu (%s) is about to wait under this_fiber::no_park: whatever it holds (a "
        "std::mutex, the address of a thread_local, errno) must be let go first, and whatever "
        "called it (a strand, OpenSSL for a callback) must be returned to",
        static_cast<unsigned long long>(self.id),
        written_name(self.name).text());
  }
}

void park(wait_reason reason) noexcept {
  park_on(*current_fiber(), reason, nullptr);
}

void park(wait_reason reason, spinlock& lock) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  park_on(*current_fiber(), reason, &lock);
}

void ready(fiber& f, turn when) noexcept {
  // Pairs with P1 in worker::after(): one of the two queues the fiber.
  if (f.park_state.exchange(park_word::notified, acq_rel) == park_word::parked) {
    f.sched->make_runnable(f, when);
  }
}

outcome wait(fiber& self, ticket t, wait_reason why, const wait_limit& limit, bool stoppable) {
  return wait_within(self, t, why, limit, stoppable, nullptr);
}

outcome wait(fiber& self,
             ticket t,
             wait_reason why,
             const wait_limit& limit,
             bool stoppable,
             spinlock& lock) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  return wait_within(self, t, why, limit, stoppable, &lock);
}

namespace {

// Both count together: which of the two was swallowed how often is not known.
void count_throw(fiber& self) {
  constexpr std::uint16_t patience = 1000;  // with a fiber that swallows what unwinds it
  if (++self.stops_thrown <= patience) return;
  fatal(
      "fiber %llu (%s) has swallowed vigil::stopped, or vigil::deadlock, %u times: a catch that "
      "takes them, as catch (...) does, must rethrow or end the fiber, or the shutdown never ends",
      static_cast<unsigned long long>(self.id),
      written_name(self.name).text(),
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

void waiter::deliver(turn when) noexcept {
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

}  // namespace vigil::inline VIGIL_ABI::detail
