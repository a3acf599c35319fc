// Includes, names and helpers that the tests of other clocks share.
#pragma once

#include "support/in_runtime.hpp"

#include <vigil/clocks.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using vigil::boot_clock;
using vigil::sleep_for;
using vigil::wall_clock;
using vigil::testing::settle;
using vigil::testing::step_wall;
using vigil::testing::suspend_for;

using wall_time = wall_clock::time_point;
using boot_time = boot_clock::time_point;

// The timers in the heap, including the waits of fibers.
inline std::uint64_t in_heap() {
  return stats().timers_pending;
}

// The start of virtual time on the wall clock: 2000-01-01 00:00 UTC.
inline constexpr wall_time wall_start{std::chrono::seconds{946'684'800}};

}  // namespace vigil::testing_support
