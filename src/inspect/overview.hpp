// overview: all that the live page shows, as JSON: the fibers and tasks in groups, the
// workers, the next deadlines and the histograms of delays. Its size does not grow with
// the number of fibers. It has no addresses.
#pragma once

#include <vigil/detail/config.hpp>

#include <string>

namespace VIGIL_DETAIL {

// Each is one JSON value. docs/guide/live-page.md describes them.
struct overview {
  std::string fibers;     // in groups of equal birth, state and wait
  std::string tasks;      // the same
  std::string workers;    // of each runtime
  std::string deadlines;  // the next ones, of waits and timers
  std::string lateness;   // of timers, and of fibers that are ready
};

// Looks at the runtimes that run, observers excepted, and at their fibers: a walk over
// the control blocks, two tenths of a microsecond each. The tasks that were started
// first, fibers_shown_at_most, are put into groups. Not in a signal handler, and not on a
// fiber. Throws std::bad_alloc.
VIGIL_FOR_IO overview take_overview();

}  // namespace VIGIL_DETAIL
