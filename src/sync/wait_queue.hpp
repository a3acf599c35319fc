// wait_queue: the waiters for one mutex, condition or counter, in the order in which they
// came.
//
// The danger. Ending a wait lets its owner go on, and the owner may destroy the queue,
// and the record in it, at once.
//
// The rule. Under the queue's lock a record is taken out and its ticket is
// claimed; then the lock is released, the last touch of the queue; then the
// waiter is delivered, the last touch of the record.
//
// WQ1 A record is linked and unlinked under the queue's lock. Its owner leaves none
//     behind: it takes out a record that nobody else took out.
// WQ2 A claim fails if the wait has already ended in another way. The caller that failed
//     has taken the record out, and looks at the next one.
// WQ3 Before a wait is ended by a value, what the value stands for has been done: the
//     lock is the waiter's, the permits are taken. So a wait that ended in another way
//     has nothing to give back.
// WQ4 A call that may return without having waited looks at the state under the queue's
//     lock, or changes it in a way that ends it. So the call that let it return has made
//     its last touch of the queue, the unlock.
#pragma once

#include "base/atomic.hpp"
#include "base/lock_rank.hpp"
#include "base/nanos.hpp"
#include "base/spinlock.hpp"
#include "sched/call/caller.hpp"
#include "sched/wait/waiter.hpp"
#include "sched/wait/wake_list.hpp"

#include <vigil/detail/sync_core.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// The record that a waiter leaves in a queue. It lies on the waiter's stack.
struct queued_wait : open_wait {
  bool linked = false;
  bool is_case = false;  // of a select
  queued_wait* before = nullptr;
  queued_wait* after = nullptr;
  std::int64_t amount = 0;  // permits, for a semaphore
  nanos since = 0;          // for a mutex: when the waiter came
};

// Whether both are cases of one select. False for nullptr.
inline bool is_same_wait(const queued_wait* a, const queued_wait* b) noexcept {
  return a != nullptr && b != nullptr && a->waiter == b->waiter && a->ticket == b->ticket;
}

// Operations on {first, last}: the queue's own list, or a second one under its lock.
struct queue_ref {
  queued_wait*& first;
  queued_wait*& last;

  bool empty() const noexcept { return first == nullptr; }

  void push_back(queued_wait& w) const noexcept;
  void push_front(queued_wait& w) const noexcept;
  void remove(queued_wait& w) const noexcept;
  // WQ2: takes records out until one can be claimed for a value.
  queued_wait* claim_first() const noexcept;
  void claim_all(wake_list& claimed) const noexcept;
};

// How far the queue, which begins with the `birth`, lies from the beginning.
template <class Core>
constexpr std::ptrdiff_t queue_offset() noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  return offsetof(Core, queue);
#pragma GCC diagnostic pop
}

inline queue_ref all_of(wait_queue& q) noexcept {
  return {q.first, q.last};
}

inline const birth* birth_of(const wait_queue& q) noexcept {
  return &q;
}

// Holds the queue's lock.
class queue_guard {
 public:
  explicit queue_guard(wait_queue& q) noexcept : queue_(q) { lock(); }

  ~queue_guard() {
    if (held_) unlock();
  }

  queue_guard(const queue_guard&) = delete;
  queue_guard& operator=(const queue_guard&) = delete;

  void lock() noexcept {
    spinlock::take(queue_.taken);
    lock_taken(lock_rank::sync);
    held_ = true;
  }

  const birth* made_at() const noexcept { return birth_of(queue_); }

  // The last touch of the queue.
  void unlock() noexcept {
    held_ = false;
    lock_released(lock_rank::sync);
    spinlock::give(queue_.taken);
  }

 private:
  wait_queue& queue_;
  bool held_ = false;
};

// Checks a caller that may have to wait, before it is queued. Throws `stopped` or
// wrong_place, with the guard released. `call` is for the error's text.
void before_waiting(const caller& self, const char* call, queue_guard& guard);

// Waits within the caller's limit with `own`, which is in the queue: every wait in a
// queue goes through here. The guard is not held. If the wait ends without a value, the
// record has been taken out, and `left(claimed)` has been called under the guard's lock,
// for what its leaving changes; the waiters in `told` are delivered. The same holds if it
// throws std::bad_alloc.
template <class Left>
outcome wait_queued(queue_ref queue,
                    queued_wait& own,
                    caller& self,
                    wait_reason reason,
                    queue_guard& guard,
                    Left left) {
  const auto leave = [&]() noexcept {
    wake_list claimed;
    guard.lock();
    if (own.linked) queue.remove(own);
    left(claimed);
    guard.unlock();
    claimed.deliver();
  };
  outcome ended = outcome::open;
  try {
    ended = self.wait(own.ticket, {reason, guard.made_at()});
  } catch (...) {
    leave();
    throw;
  }
  if (ended != outcome::value) leave();
  return ended;
}

inline constexpr auto changes_nothing = [](wake_list&) noexcept {};

// Queues `own`, at the end or at the front, and releases the guard.
void queue_up(queue_ref queue,
              queued_wait& own,
              caller& self,
              queue_guard& guard,
              bool at_front = false) noexcept;

// Queues `own` and waits. Returns true for a value, false if the limit has come; throws
// if a stop or a cancellation ended the wait.
template <class Left>
bool wait_in(queue_ref queue,
             queued_wait& own,
             caller& self,
             wait_reason reason,
             queue_guard& guard,
             Left left,
             bool at_front = false) {
  queue_up(queue, own, self, guard, at_front);
  const outcome ended = wait_queued(queue, own, self, reason, guard, left);
  if (ended == outcome::value) return true;
  self.throw_if_ended(ended);
  return false;
}

}  // namespace VIGIL_DETAIL
