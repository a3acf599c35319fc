// Sleepers of idle_workers without workers, for its tests.
#pragma once

#include "core/base/clock_source.hpp"
#include "core/sched/idle/idle.hpp"

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

}  // namespace vigil::testing_support
