// start_detached: starts a thread that nobody joins, and that takes none of the program's
// signals.
#pragma once

#include <vigil/detail/config.hpp>

#include <functional>

namespace VIGIL_DETAIL {

// The thread is detached before it runs. std::thread::detach() comes after, and in glibc
// it reads the thread's record, which may be gone if the thread has ended by then.
//
// Throws std::system_error if there can be no thread, and what the copy of f throws; an
// exception that leaves f terminates the program.
VIGIL_FOR_IO void start_detached(std::function<void()> f);

}  // namespace VIGIL_DETAIL
