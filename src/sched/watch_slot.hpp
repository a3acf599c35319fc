// watch_slot: the watch in which a runtime's idle workers wait. It may be changed
// once, while workers run and sleep, if none was given at the start: by the layer
// of I/O.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/watch.hpp"

#include <memory>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

class watch_slot {
 public:
  // The futex watch if none is given.
  explicit watch_slot(std::unique_ptr<watch> given)
      : first_(given ? std::move(given) : std::make_unique<futex_watch>()),
        may_change_(dynamic_cast<futex_watch*>(first_.get()) != nullptr),
        present_(first_.get()) {}

  watch& present() const noexcept {
    // Pairs with the store in change().
    return *present_.load(acquire);
  }

  // False if one was given at the start, or came first. Both watches stay as long as the
  // slot does.
  bool change(std::unique_ptr<watch> w) noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    if (!may_change_ || second_ != nullptr) return false;
    second_ = std::move(w);
    // Before anybody sleeps in it: a signal that interrupts the old one finds its
    // sleeper there, or that sleeper looks at the signals later.
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

}  // namespace vigil::inline VIGIL_ABI::detail
