// pinned_inbox: the ready fibers that are pinned to one worker.
//
// Nobody steals from it: a pinned fiber never stands in a queue that others read.
// push() may be called by any thread, pop() by the owner alone.
//
// filled_ is true exactly while there is a fiber, so that the owner's look costs one
// load. Both change under the lock.
//
// The owner may be asleep: the caller of push() wakes it afterwards (IA1, IA3 of
// idle.hpp).
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/fiber/fiber.hpp"

namespace VIGIL_DETAIL {

class pinned_inbox {
 public:
  void push(fiber& f) noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    fibers_.push_back(f);
    filled_.store(true);  // seq_cst: IA1 of idle.hpp
  }

  fiber* pop() noexcept VIGIL_EXCLUDES(lock_) {
    // Pairs with the store in push(); a stale `false` is mended by the last look
    // before sleep, which reads it sequentially consistent.
    if (!filled_.load(order::acquire)) return nullptr;
    const lock_guard guard(lock_);
    fiber* const f = fibers_.pop_front();
    if (fibers_.empty()) filled_.store(false);
    return f;
  }

  // Any thread. seq_cst: IS2 of idle.hpp.
  bool filled() const noexcept { return filled_.load(); }

  // ordering: a hint.
  bool looks_filled() const noexcept { return filled_.load(order::relaxed); }

 private:
  spinlock lock_{lock_rank::inbox};
  fiber_chain fibers_ VIGIL_GUARDED_BY(lock_);
  atomic<bool> filled_{false};
};

}  // namespace VIGIL_DETAIL
