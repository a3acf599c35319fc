// The terminate handler of a process with a running runtime: it says which fiber an
// uncaught exception has left, and calls the handler that was there before.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// To be called before std::terminate by code that has said itself what ends the program.
void process_end_is_named() noexcept;

// Called when a run begins, and when the last one has ended, under process_lock.
void install_terminate() noexcept;
void remove_terminate() noexcept;

}  // namespace VIGIL_DETAIL
