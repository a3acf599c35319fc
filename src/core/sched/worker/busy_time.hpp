// busy_time: how long a worker has not slept, in real time, up to now.
//
// One word says all, so that a reader on any thread gets sums that never go down: of a
// worker that sleeps the sum itself, and of one that is awake the moment from which it
// would have been busy all the time. Two looks at the clock for each sleep are its price.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/nanos.hpp"

namespace VIGIL_DETAIL {

class busy_time {
 public:
  // --- the worker's thread
  // Caller: lay before.
  void gets_up() noexcept { word_.store(monotonic_now() - asleep_sum(word_.load())); }

  // Caller: was up.
  void lies_down() noexcept { word_.store(as_asleep(monotonic_now() - word_.load())); }

  // --- any thread
  nanos get() const noexcept {
    for (;;) {
      const nanos word = word_.load();
      if (word < 0) return asleep_sum(word);
      const nanos now = monotonic_now();
      if (word_.load() == word) return now - word;  // it was up at `now`
    }
  }

 private:
  // Below zero, so that it differs from a moment.
  static constexpr nanos as_asleep(nanos sum) noexcept { return -1 - sum; }

  static constexpr nanos asleep_sum(nanos word) noexcept { return -1 - word; }

  atomic<nanos> word_{as_asleep(0)};
};

}  // namespace VIGIL_DETAIL
