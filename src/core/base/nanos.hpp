// Time inside the library: nanoseconds of the runtime's clock in 64 bits.
//
// A deadline is a count since the clock's epoch; `never` is the largest value
// and is never reached. All arithmetic saturates (P12), so no sum of a
// deadline and a duration can wrap into the past.
#pragma once

#include <vigil/detail/deadline.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

using nanos = std::int64_t;

inline constexpr nanos never = no_deadline;

}  // namespace VIGIL_DETAIL
