// watch_slot: the watch in which a runtime's idle workers wait. If it is a futex watch,
// the layer of I/O may replace it once, while workers run and sleep.
#pragma once

#include "core/base/atomic.hpp"
#include "core/sched/idle/watch.hpp"

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
    // Pairs with the exchange in change().
    return *present_.load(order::acquire);
  }

  // Replaces the watch. False if the first one is not a futex watch, or another call came
  // first. Both watches stay as long as the slot does.
  bool change(std::unique_ptr<watch> w) noexcept {
    watch* expected = first_.get();
    // A call that comes too late finds the new watch in present(). It stands there before
    // a worker sleeps in it: a signal that interrupts the old watch finds its sleeper
    // there, or that sleeper looks at the signals later.
    if (!may_change_ || !present_.compare_exchange_strong(expected, w.get())) return false;
    second_ = std::move(w);
    return true;
  }

 private:
  const std::unique_ptr<watch> first_;
  const bool may_change_;
  atomic<watch*> present_;
  std::unique_ptr<watch> second_;  // written by the one call that changes the watch
};

}  // namespace VIGIL_DETAIL
