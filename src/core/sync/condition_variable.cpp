// condition_variable: a queue of waiters.
//
// The danger. Between a waiter's look at the condition and its wait for a change, another
// caller may change the condition and notify, and find no waiter.
//
// The rule. A waiter queues first and then unlocks, so the next holder of the lock,
// which changes the condition, finds it. A notification takes out the queued
// waiters, so a later one cannot take it away from them.
#include "core/sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

namespace VIGIL_DETAIL {

namespace {

// Takes the lock back in every case: a deadlock does not end this wait. The lock is
// released by other waits that the deadlock ends, or by the stop of its holders.
struct taking_back {
  const any_lock& lock;

  ~taking_back() {
    fiber* const self = current_fiber();
    if (self != nullptr) ++self->guards.relocks;
    lock.relock(lock.lock);
    if (self != nullptr) --self->guards.relocks;
  }
};

}  // namespace

bool wait(condition_core& c, const any_lock& lock, const wait_limit& limit) {
  caller self(limit);
  if (self.may_not_wait()) self.refuse("condition_variable::wait");

  const queue_ref all = detail::all_of(c.queue);
  queued_wait own;
  queue_guard guard(c.queue);
  self.open(own);  // nobody sees the record before the guard is released
  all.push_back(own);
  guard.unlock();
  const auto leave = [&]() noexcept {
    guard.lock();
    if (own.linked) all.remove(own);
    guard.unlock();
  };
  const auto wait_for_it = [&] {
    return self.wait(own.opened, {wait_reason::condition, &c.queue}, leave);
  };
  try {
    lock.unlock(lock.lock);
  } catch (...) {
    // As if wait() had not been called: a notification that has already come goes to the
    // next waiter.
    if (own.whose->claim(own.opened, outcome::cancelled)) {
      leave();
    } else if (wait_for_it() == outcome::value) {
      notify_one(c);
    }
    throw;
  }
  outcome ended = outcome::open;
  {
    const taking_back at_end{lock};
    ended = wait_for_it();
  }
  self.throw_if_ended(ended);
  return ended == outcome::value;
}

void notify_one(condition_core& c) noexcept {
  queued_wait* first = nullptr;
  {
    const queue_guard guard(c.queue);
    first = detail::all_of(c.queue).claim_first();
  }
  if (first != nullptr) first->whose->deliver();
}

void notify_all(condition_core& c) noexcept {
  wake_list claimed;
  {
    const queue_guard guard(c.queue);
    detail::all_of(c.queue).claim_all(claimed);
  }
  claimed.deliver();
}

}  // namespace VIGIL_DETAIL
