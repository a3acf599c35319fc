// The terminate handler of a process with a running runtime: it says which fiber an
// uncaught exception has left, and calls the handler that was there before.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Called when a run begins, and when the last one has ended, under process_lock.
void install_terminate() noexcept;
void remove_terminate() noexcept;

}  // namespace VIGIL_DETAIL
