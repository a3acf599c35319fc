// condition_variable: a queue of those who wait.
//
// The danger. Between looking at the condition and waiting for its change
// somebody may change it and notify, and find nobody.
//
// The rule. A waiter queues first and then unlocks, so the next holder of the lock,
// which changes the condition, finds it. A notification takes out the queued
// waiters, so a later one cannot take it away from them.
#include "sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

namespace vigil::inline VIGIL_ABI::detail {

using detail::outcome;
using detail::wake_list;

namespace {

// In every case: a deadlock does not end this wait. Others that it ends, or the
// stop of those who hold the lock, let go of it.
struct taking_back {
  const any_lock& lock;

  ~taking_back() {
    detail::fiber* const self = detail::current_fiber();
    if (self != nullptr) ++self->relocks;
    lock.relock(lock.lock);
    if (self != nullptr) --self->relocks;
  }
};

}  // namespace

bool wait(condition_core& c, const any_lock& lock, const wait_limit& limit) {
  detail::caller self(limit);
  if (self.may_not_wait()) self.refuse("condition_variable::wait");

  const detail::line all = detail::all_of(c.queue);
  queued_wait own;
  detail::queue_guard guard(c.queue);
  detail::queue_up(all, own, self, guard);
  const auto wait_for_it = [&] {
    return detail::wait_queued(
        all, own, self, detail::wait_reason::condition, guard, detail::changes_nothing);
  };
  try {
    lock.unlock(lock.lock);
  } catch (...) {
    // It is as if it had not been called; a notification that has come already
    // goes to the next one.
    if (own.who->claim(own.which, outcome::cancelled)) {
      guard.lock();
      if (own.linked) all.remove(own);
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
    const detail::queue_guard guard(c.queue);
    first = detail::all_of(c.queue).claim_first();
  }
  if (first != nullptr) first->who->deliver();
}

void notify_all(condition_core& c) noexcept {
  wake_list told;
  {
    const detail::queue_guard guard(c.queue);
    detail::all_of(c.queue).claim_all(told);
  }
  told.deliver();
}

}  // namespace vigil::inline VIGIL_ABI::detail
