// Time inside the library: nanoseconds of the runtime's clock in 64 bits.
//
// A deadline is a count since the clock's epoch; `never` is the largest value
// and is never reached. All arithmetic saturates (P12), so no sum of a
// deadline and a duration can wrap into the past.
#pragma once

#include <cstdint>
#include <limits>

namespace vigil::internal {

using nanos = std::int64_t;

inline constexpr nanos never = std::numeric_limits<nanos>::max();

// now + duration, for any duration, negative ones included.
constexpr nanos saturating_add(nanos a, nanos b) noexcept {
  nanos sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? never : std::numeric_limits<nanos>::min();
}

}  // namespace vigil::internal
