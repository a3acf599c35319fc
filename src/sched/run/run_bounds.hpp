// run_bounds: since when a worker has run the fiber that it runs, without a clock
// at its switches.
//
// The worker counts its switches. Who looks at that count now and then knows, as
// long as it stays the same, that the present run began between the last look at
// another count and the first look at this one. So the answer is two bounds, and
// each look makes those of later ones narrower.
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"

#include <algorithm>

namespace vigil::inline VIGIL_ABI::detail {

class run_bounds {
 public:
  struct span {
    nanos at_least = 0;
    nanos at_most = 0;
  };

  // A run of the runtime begins. Nobody else looks yet.
  void begin(unsigned long switches, nanos now) noexcept {
    switches_ = switches;
    before_ = first_ = last_ = now;
  }

  // The worker's count is `switches` at `now`, on the monotonic clock. Any thread,
  // also in a signal handler: false if another one looks at this moment, maybe
  // below the handler.
  bool look(unsigned long switches, nanos now, span& out) noexcept {
    // Pairs with the store below: what the last one to look has written is seen.
    if (busy_.exchange(true, acquire)) return false;
    now = std::max(now, last_);  // another one may have read the clock later
    if (switches != switches_) {
      switches_ = switches;
      before_ = last_;
      first_ = now;
    }
    last_ = now;
    out = {now - first_, now - before_};
    // Pairs with the exchange above.
    busy_.store(false, release);
    return true;
  }

 private:
  atomic<bool> busy_{false};
  // Whose turn it is by busy_ has these.
  unsigned long switches_ = 0;
  nanos before_ = 0;  // the last look at another count, or the beginning
  nanos first_ = 0;   // the first look at this one
  nanos last_ = 0;
};

}  // namespace vigil::inline VIGIL_ABI::detail
