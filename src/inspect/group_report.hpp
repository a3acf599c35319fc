// group_report: one group of the overview, looked at closely: how many fibers it has, and
// its oldest ones with their frames.
#pragma once

#include "core/sched/report/fiber_view.hpp"

#include <vigil/detail/config.hpp>

#include <string>
#include <string_view>

namespace VIGIL_DETAIL {

// Stands for the birth, state and wait of a fiber or task, and is the same in each look:
// 16 hexadecimal digits, in which no address is.
std::string group_key(const fiber_view& v);

// The lines of the lines_at_most oldest fibers of this group, as a dump has them; "" if
// there is no such group. Walks twice over all fibers. Frames are read of fibers that
// wait, and not asked for of those that run. Not in a signal handler, and not on a fiber.
// Throws std::bad_alloc.
VIGIL_FOR_IO std::string group_text(std::string_view key, bool with_addresses);

}  // namespace VIGIL_DETAIL
