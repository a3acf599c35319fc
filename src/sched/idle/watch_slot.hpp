// watch_slot: the watch in which a runtime's idle workers wait. If it is a futex watch,
// the layer of I/O may replace it once, while workers run and sleep.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/idle/watch.hpp"

#include <memory>
#include <utility>

namespace VIGIL_DETAIL {

class watch_slot {
 public:
  // The futex watch if none is given.
  explicit watch_slot(std::unique_ptr<watch> given)
      : first_(given ? std::move(given) : std::make_unique<futex_watch>()),
        may_change_(dynamic_cast<futex_watch*>(first_.get()) != nullptr),
        present_(first_.get()) {}

  watch& present() const noexcept {
    // Pairs with the store in change().
    return *present_.load(order::acquire);
  }

  // Replaces the watch. False if the first one is not a futex watch, or another call came
  // first. Both watches stay as long as the slot does.
  bool change(std::unique_ptr<watch> w) noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    if (!may_change_ || second_ != nullptr) return false;
    second_ = std::move(w);
    // Stored before a worker sleeps in it: a signal that interrupts the old watch finds
    // its sleeper there, or that sleeper looks at the signals later.
    present_.store(second_.get());
    return true;
  }

 private:
  const std::unique_ptr<watch> first_;
  const bool may_change_;
  atomic<watch*> present_;
  spinlock lock_{lock_rank::shutdown};
  std::unique_ptr<watch> second_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace VIGIL_DETAIL
