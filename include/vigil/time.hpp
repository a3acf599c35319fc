// Time: the clock, sleep_for, sleep_until.
//
// All waiting is on the monotonic clock: steps of the wall clock change
// nothing. A sleep never ends early, not by a nanosecond.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>

#include <chrono>
#include <cstdint>

namespace vigil {
inline namespace VIGIL_ABI {

namespace detail {
VIGIL_API std::int64_t now() noexcept;
VIGIL_API void sleep_until(std::int64_t deadline);
VIGIL_API void sleep_for(std::int64_t duration);
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

// Parks the calling fiber for at least d. Zero or negative: returns at once,
// without giving the worker away. Durations beyond the clock's range sleep
// for ever (until the shutdown). Throws `stopped` if the fiber is asked to
// stop before or during the sleep, however long it is, and wrong_place outside
// a fiber: on a plain thread use std::this_thread::sleep_for.
//
// Cost: no allocation after the fiber's first timed wait; a lone sleep makes
// one kernel wait.
template <detail::duration_like D>
void sleep_for(const D& d) {
  detail::sleep_for(detail::to_nanos(d));
}

// Parks the calling fiber until t is reached; a t that has passed returns at
// once. Time points of steady_clock and system_clock are converted once.
template <class Clock, class Duration>
void sleep_until(const std::chrono::time_point<Clock, Duration>& t) {
  detail::sleep_until(deadline_at(t).time_since_epoch().count());
}

}  // namespace VIGIL_ABI
}  // namespace vigil
