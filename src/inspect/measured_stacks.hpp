// measured_stacks: measures how much of their stacks a few fibers use. A measured fiber
// begins on a stack without memory below its control block, so that the pages that have
// memory later are those it has touched.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Measures fibers that are made from now on, or no more. Those that are measured when it
// ends are left out. Any thread.
void measure_stacks(bool wanted) noexcept;

}  // namespace VIGIL_DETAIL
