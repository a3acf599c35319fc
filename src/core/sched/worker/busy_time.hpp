// busy_time: how long a worker has not slept, in real time, up to now.
//
// One word says all: of a worker that sleeps the sum itself, and of one that is awake the
// moment from which it would have been busy all the time. A worker may lose its processor
// between its look at the clock and the word, while others take it for awake; so they
// keep what they have told, which never goes down. Two looks at the clock for each sleep
// are its price.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/nanos.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

class busy_time {
 public:
  // --- the worker's thread
  // Caller: lay before.
  void gets_up() noexcept {
    // ordering: a statistic, of which this thread alone is the writer.
    const nanos sum = asleep_sum(word_.load(order::relaxed));
    word_.store(monotonic_now() - sum, order::relaxed);
  }

  // Caller: was up.
  void lies_down() noexcept {
    // ordering: as above.
    const nanos sum = monotonic_now() - word_.load(order::relaxed);
    word_.store(as_asleep(sum), order::relaxed);
  }

  // --- any thread
  nanos get() const noexcept {
    const nanos present = look();
    nanos told = told_.load();
    while (told < present && !told_.compare_exchange_weak(told, present)) {
    }
    return std::max(told, present);
  }

 private:
  nanos look() const noexcept {
    for (;;) {
      const nanos word = word_.load();
      if (word < 0) return asleep_sum(word);
      const nanos now = monotonic_now();
      if (word_.load() == word) return now - word;
    }
  }

  // Below zero, so that it differs from a moment.
  static constexpr nanos as_asleep(nanos sum) noexcept { return -1 - sum; }

  static constexpr nanos asleep_sum(nanos word) noexcept { return -1 - word; }

  atomic<nanos> word_{as_asleep(0)};
  mutable atomic<nanos> told_{0};  // the largest that get() has returned
};

}  // namespace VIGIL_DETAIL
