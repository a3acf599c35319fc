// Limits of a mutex, which tests change.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// How often a lock() that finds the mutex taken looks again before it waits, each time
// after twice as many pauses.
inline atomic<unsigned> mutex_looks{4};

// How often others may take the mutex before the woken waiter gets there. If this is
// small, newcomers have to wait themselves. (bench/peers, 8 fibers, 2 workers: 64: 55 ns,
// 1024: 25 ns)
inline atomic<unsigned> mutex_overtakes{1024};

}  // namespace VIGIL_DETAIL
