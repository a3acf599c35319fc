// Names and helpers that the tests of idle_workers share: sleepers without workers.
#pragma once

#include "core/base/clock_source.hpp"
#include "core/sched/idle/idle.hpp"

namespace vigil::testing_support {

using detail::futex_watch;
using detail::idle_workers;
using detail::monotonic_now;
using detail::nanos;
using detail::never;
using detail::sleeper;

inline constexpr nanos hour = 3'600'000'000'000;

// Lies down without sleeping: the part of a sleep that others see.
inline void lie(idle_workers& idle, sleeper& s, nanos next, nanos second) {
  idle.start_looking();
  idle.lie_down(s, next, second);
}

}  // namespace vigil::testing_support
