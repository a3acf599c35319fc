#include "base/spinlock.hpp"

#include <sched.h>

namespace vigil::internal {

void spinlock::lock_slowly() noexcept {
  int spins = 0;
  do {
    // ordering: waits for a change; the exchange below acquires.
    while (taken_.load(relaxed)) {
      // The owner may have lost its processor: after a while, let it have
      // this one.
      if (++spins < 64) {
        cpu_pause();
      } else {
        ::sched_yield();
      }
    }
    // Pairs with the release in unlock().
  } while (taken_.exchange(true, acquire));
}

}  // namespace vigil::internal
