// The clock of all deadlines, and the conversion from other clocks.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/deadline.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/mistakes.hpp>

#include <chrono>

namespace VIGIL_PUBLIC {

// clock: the clock of the calling fiber's runtime, which is CLOCK_MONOTONIC, or virtual
// time inside testing::run_virtual. On a thread without a runtime it is CLOCK_MONOTONIC.
// Throws nothing. Thread safety: any thread. Cost: about one clock_gettime.
struct clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = true;

  // The current time.
  static time_point now() noexcept { return time_point(duration(detail::now())); }
};

// The deadline d from now, saturated: a huge duration gives time_point::max(), which is
// never reached, and a negative one a time that has passed. Throws std::invalid_argument
// for a duration that is NaN. Thread safety: any thread. Shutdown: works during it. Cost:
// that of clock::now().
template <detail::duration_like D>
clock::time_point deadline_in(const D& d) {
  return clock::time_point(
      clock::duration(detail::saturating_add(detail::now(), detail::to_nanos(d))));
}

template <class write = detail::write_a_duration_such_as_5ms>
void deadline_in(...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

// Converts a deadline of another clock once, by its distance from that clock's now; later
// steps of a wall clock change nothing. The clock's max() stays max(). Throws as
// deadline_in does, and what the now() of that clock throws. Thread safety: any thread.
// Shutdown: works during it. Cost: one reading of both clocks; none for a deadline of
// vigil::clock.
template <detail::time_point_like T>
clock::time_point deadline_at(const T& t) {
  return clock::time_point(clock::duration(detail::to_deadline(t)));
}

}  // namespace VIGIL_PUBLIC
