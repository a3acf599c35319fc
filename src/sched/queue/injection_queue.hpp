// injection_queue: ready fibers that are in no worker's own queue: those that come
// from threads outside the workers, and those for which a worker's queue had no room.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/fiber/fiber.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class injection_queue {
 public:
  // Adds all of them at once. The caller then sees to it that a worker looks.
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
  spinlock lock_{lock_rank::injection};
  fiber_chain fibers_ VIGIL_GUARDED_BY(lock_);
  alignas(cache_line) atomic<std::size_t> count_{0};
};

}  // namespace VIGIL_DETAIL
