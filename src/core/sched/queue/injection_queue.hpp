// injection_queue: ready fibers that are in no worker's own queue. A runtime has one, for
// those that come from threads outside the workers, and those for which a worker's queue
// had no room. Each worker has one, its inbox, for the fibers that are pinned to it:
// there nobody else takes any.
//
// push() may be called by any thread. The caller then sees to it that a worker looks
// (IA1, IA3 of idle.hpp).
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/fiber/fiber.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class injection_queue {
 public:
  explicit injection_queue(lock_rank rank) noexcept : lock_(rank) {}

  void push(fiber& f) noexcept VIGIL_EXCLUDES(lock_) {
    fiber_chain one;
    one.push_back(f);
    push(one);
  }

  // Adds all of them at once.
  void push(fiber_chain& fibers) noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    fibers_.splice_back(fibers);
    count_.store(fibers_.size());  // seq_cst: IA1 of idle.hpp
  }

  fiber* pop() noexcept VIGIL_EXCLUDES(lock_) {
    if (looks_empty()) return nullptr;  // a stale zero is mended by the last look before sleep
    const lock_guard guard(lock_);
    fiber* const f = fibers_.pop_front();
    count_.store(fibers_.size());
    // Fetches the next one while this one runs: fibers queue here for long.
    if (const fiber* const next = fibers_.front()) prefetch(*next);
    return f;
  }

  bool empty() const noexcept { return count_.load() == 0; }  // seq_cst: IS2 of idle.hpp

  // ordering: a hint.
  bool looks_empty() const noexcept { return count_.load(order::relaxed) == 0; }

 private:
  spinlock lock_;
  fiber_chain fibers_ VIGIL_GUARDED_BY(lock_);
  alignas(cache_line) atomic<std::size_t> count_{0};
};

}  // namespace VIGIL_DETAIL
