// What tests change of a mutex.
#pragma once

#include "base/atomic.hpp"

namespace vigil::internal {

// How often a lock() that finds it taken looks again before it waits, each time
// after twice as many pauses.
inline atomic<unsigned> mutex_looks{4};

}  // namespace vigil::internal
