// The clock that all deadlines are on, and how other clocks' are converted.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>

#include <chrono>
#include <cstdint>
#include <type_traits>

namespace vigil {
inline namespace VIGIL_ABI {

namespace detail {
VIGIL_API std::int64_t now() noexcept;
}  // namespace detail

// The clock of the calling fiber's runtime: CLOCK_MONOTONIC, or virtual time
// inside testing::run_virtual. On a thread without a runtime, CLOCK_MONOTONIC.
struct clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = true;

  // Never fails. About the cost of one clock_gettime.
  static time_point now() noexcept { return time_point(duration(detail::now())); }
};

// The deadline `d` from now, saturated: huge durations give time_point::max(),
// which is never reached.
template <detail::duration_like D>
clock::time_point deadline_in(const D& d) {
  std::int64_t sum = 0;
  const std::int64_t length = detail::to_nanos(d);
  if (__builtin_add_overflow(detail::now(), length, &sum)) {
    return length > 0 ? clock::time_point::max() : clock::time_point::min();
  }
  return clock::time_point(clock::duration(sum));
}

// A deadline of another clock, converted once by its distance from that
// clock's own now; later steps of a wall clock change nothing.
template <class Clock, class Duration>
clock::time_point deadline_at(const std::chrono::time_point<Clock, Duration>& t) {
  if constexpr (std::is_same_v<Clock, clock>) {
    return clock::time_point(clock::duration(detail::to_nanos(t.time_since_epoch())));
  } else {
    if (t == std::chrono::time_point<Clock, Duration>::max()) return clock::time_point::max();
    const auto from = Clock::now();
    const std::int64_t target = detail::to_nanos(t.time_since_epoch());
    const std::int64_t base = detail::to_nanos(from.time_since_epoch());
    std::int64_t distance = 0;
    if (__builtin_sub_overflow(target, base, &distance)) {
      return target > base ? clock::time_point::max() : clock::time_point::min();
    }
    return deadline_in(clock::duration(distance));
  }
}

}  // namespace VIGIL_ABI
}  // namespace vigil
