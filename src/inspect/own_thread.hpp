// own_thread: does a piece of work on a thread of its own. Reading debug information
// takes more stack than a fiber has, and a fiber that looks at all others is looked at as
// well.
//
// The work may need a lock that a stuck fiber holds: malloc's, or the dynamic loader's.
// So the caller waits for a limited time, and then leaves the thread behind.
#pragma once

#include "core/base/nanos.hpp"

#include <vigil/detail/config.hpp>

#include <functional>
#include <string>

namespace VIGIL_DETAIL {

// Starts f on such a thread. f must not throw, and owns all that it touches. Throws
// std::system_error if the thread cannot be started.
VIGIL_FOR_IO void start_own_thread(std::function<void()> f);

// Returns true when f has returned; false if it has not within `patience`, and may go on
// for ever: f owns all that it touches. Throws what f throws, and std::system_error if
// the thread cannot be started.
bool on_own_thread(nanos patience, std::function<void()> f);

// Appends what `write` returns; false, with `out` as it was, if it fails or takes too
// long.
VIGIL_FOR_IO bool written_elsewhere(std::string& out,
                                    nanos patience,
                                    std::function<std::string()> write) noexcept;

// Clears the part of the stack below the caller's frame that glibc keeps for the next
// thread: addresses of channels in it would pass for pointers (stuck_fibers.hpp).
void clear_stack() noexcept;

// How long what the program does next waits for the names of functions.
inline constexpr nanos names_patience = 3'000'000'000;

}  // namespace VIGIL_DETAIL
