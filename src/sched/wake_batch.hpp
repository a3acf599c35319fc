// wake_batch: ends many waits, a few dozen under each hold of a lock.
//
//   for (bool more = true; more;) {
//     wake_batch batch;
//     { lock;  batch.take(queue, claim);  more = !queue.empty(); }
//     batch.deliver();
//   }
//
// Nobody may queue any more: whoever looks under the lock finds what is ended. Who
// waits lies on a stack of his own, long out of the cache. So a batch first asks for
// the memory of all its waiters, and for the next batch's entries (far_list), before
// it claims the first.
#pragma once

#include "base/atomic.hpp"
#include "base/intrusive_list.hpp"
#include "sched/waiter.hpp"

#include <cstddef>

namespace vigil::internal {

class wake_batch {
 public:
  // Takes entries out until the batch is full; `claim(entry)` says whether the wait
  // was ended by it. Caller: holds the queue's lock.
  template <class Entry, class Claim>
  void take(far_list<Entry>& queue, Claim claim) noexcept {
    Entry* taken[room];
    std::size_t n = 0;
    for (; n < room && !queue.empty(); ++n) {
      taken[n] = queue.pop_front();
      __builtin_prefetch(taken[n]->ahead, 1);
      prefetch(taken[n]->who);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (claim(*taken[i])) claimed_[size_++] = taken[i]->who;
    }
  }

  // Makes those whose waits were ended go on. Caller: holds no lock; at its end.
  void deliver() noexcept;

 private:
  static constexpr std::size_t room = far_stride;

  // What claiming and readying touch. Of a fiber: its record from park_state on.
  static void prefetch(const waiter* who) noexcept {
    __builtin_prefetch(who, 1);
    __builtin_prefetch(reinterpret_cast<const char*>(who) - cache_line, 1);
    __builtin_prefetch(reinterpret_cast<const char*>(who) + cache_line, 1);
  }

  waiter* claimed_[room];
  std::size_t size_ = 0;
};

}  // namespace vigil::internal
