// Sleepers of idle_workers without workers, for its tests.
#pragma once

#include "base/clock_source.hpp"
#include "sched/idle.hpp"

namespace vigil::testing_support {

inline constexpr detail::nanos hour = 3'600'000'000'000;

// Lies down without sleeping: the part of a sleep that others see.
inline void lie(detail::idle_workers& idle,
                detail::sleeper& s,
                detail::nanos next,
                detail::nanos second) {
  idle.start_looking();
  idle.lie_down(s, next, second);
}

// Two that lie at a watch that counts as left often: a in it, b beside it.
struct two_at_busy_watch {
  explicit two_at_busy_watch(detail::nanos next = detail::never) {
    idle.count_as_busy();
    lie(idle, a, next, next);
    lie(idle, b, next, next);
  }

  // Sends a to user code. False if b was woken instead of having an alarm set, because
  // this thread has lost its processor meanwhile.
  bool leaves_with_alarm() {
    left = detail::monotonic_now();
    idle.stay_awake(a);
    idle.stop_looking();
    idle.staff_watch();
    return idle.asleep() == 1;
  }

  detail::futex_watch watch;
  detail::idle_workers idle{watch};
  detail::sleeper a;
  detail::sleeper b;
  detail::nanos left = 0;
};

}  // namespace vigil::testing_support
