// run_bounds: for how long the present stretch of a worker has lasted
// (worker_counters.hpp), found out without a look at the clock at each switch.
//
// The worker counts its stretches. A thread that looks at the count now and then knows,
// as long as the count stays the same, that the present one began between the last look
// at another count and the first look at this one. So the answer is two bounds, and each
// look makes those of later ones narrower.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

class run_bounds {
 public:
  struct span {
    nanos at_least = 0;
    nanos at_most = 0;
  };

  // Called when a run of the runtime begins, while no other thread looks.
  void begin(unsigned long stretch, nanos now) noexcept {
    stretch_ = stretch;
    before_ = first_ = last_ = now;
  }

  // Notes that the worker's count is `stretch` at `now`, on the monotonic clock. Any
  // thread, even in a signal handler. False if another look is under way, on another
  // thread or below the handler.
  bool look(unsigned long stretch, nanos now, span& out) noexcept {
    // Pairs with the store below: this look sees what the last one has written.
    if (busy_.exchange(true, order::acquire)) return false;
    now = std::max(now, last_);  // another one may have read the clock later
    if (stretch != stretch_) {
      stretch_ = stretch;
      before_ = last_;
      first_ = now;
    }
    last_ = now;
    out = {now - first_, now - before_};
    // Pairs with the exchange above.
    busy_.store(false, order::release);
    return true;
  }

 private:
  atomic<bool> busy_{false};
  // Guarded by busy_.
  unsigned long stretch_ = 0;
  nanos before_ = 0;  // the last look at another count, or the beginning
  nanos first_ = 0;   // the first look at this one
  nanos last_ = 0;
};

}  // namespace VIGIL_DETAIL
