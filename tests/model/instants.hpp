// Instants and durations that the model programs share: the explorer's clock goes on only
// when all threads wait, so any two different numbers would do.
#pragma once

#include "core/base/nanos.hpp"

#include <vigil/clock.hpp>

#include <chrono>

namespace programs {

using vigil::detail::nanos;

inline constexpr nanos near = 1000;
inline constexpr nanos nearer = 500;
inline constexpr nanos far = 1'000'000;
inline constexpr std::chrono::microseconds brief{1};

inline std::chrono::nanoseconds in(nanos n) {
  return std::chrono::nanoseconds(n);
}

inline vigil::clock::time_point at(nanos n) {
  return vigil::clock::time_point(in(n));
}

}  // namespace programs
