// delay_counters: a histogram of delays, with one writer and any number of readers.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"

#include <vigil/stats.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// The bucket of a delay_histogram for so many nanoseconds.
inline std::size_t delay_bucket(std::uint64_t n) noexcept {
  const auto bucket = static_cast<std::size_t>(std::bit_width(n / 1000));
  return std::min(bucket, delay_histogram::buckets - 1);
}

// A delay that is below zero, by two clocks that differ, counts as none.
inline std::uint64_t as_delay(nanos late) noexcept {
  return static_cast<std::uint64_t>(late < 0 ? 0 : late);
}

// For a histogram that a lock guards.
inline void note_delay(delay_histogram& h, nanos late) noexcept {
  const std::uint64_t n = as_delay(late);
  ++h.count[delay_bucket(n)];
  h.sum_nanos += n;
  h.max_nanos = std::max(h.max_nanos, n);
}

class delay_counters {
 public:
  void note(nanos late) noexcept {
    const std::uint64_t n = as_delay(late);
    buckets_[delay_bucket(n)].add();
    sum_.add(n);
    // ordering: a statistic with one writer.
    if (n > most_.load(order::relaxed)) most_.store(n, order::relaxed);
  }

  void add_stats(delay_histogram& h) const noexcept {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      h.count[i] += buckets_[i].get();
    h.sum_nanos += sum_.get();
    h.max_nanos = std::max(h.max_nanos, most_.load(order::relaxed));  // ordering: as above
  }

 private:
  std::array<own_counter, delay_histogram::buckets> buckets_;
  own_counter sum_;
  atomic<std::uint64_t> most_{0};
};

}  // namespace VIGIL_DETAIL
