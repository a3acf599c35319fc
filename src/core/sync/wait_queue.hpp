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

#include "core/base/atomic.hpp"
#include "core/base/lock_rank.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/wait/wake_list.hpp"

#include <vigil/detail/sync_core.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// The record that a waiter leaves in a queue. It lies on the waiter's stack.
struct queued_wait : open_wait {
  bool linked = false;
  bool is_case = false;  // made by wait_case: it cannot go back to the queue
  queued_wait* before = nullptr;
  queued_wait* after = nullptr;
  std::int64_t amount = 0;  // permits, for a semaphore
  nanos since = 0;          // for a mutex: when the waiter came
};

// Whether both are cases of one select. False for nullptr.
inline bool is_same_wait(const queued_wait* a, const queued_wait* b) noexcept {
  return a != nullptr && b != nullptr && a->whose == b->whose && a->opened == b->opened;
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

// Waits in the queue within the caller's limit, and releases the guard. Throws if the
// caller may not wait, or if a stop or a cancellation has ended the wait. `call` is for
// the error's text.
void wait_in(wait_queue& q, caller& self, wait_reason reason, const char* call, queue_guard& guard);

}  // namespace VIGIL_DETAIL
