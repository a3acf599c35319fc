// The threads of the process, and those of them that are quiet: threads of the library
// that are not workers and start nothing by themselves. The threads of a side pool are
// quiet except while they run the user's code. A deadlock is reported only if all
// threads of the process are workers or quiet.
//
// A quiet thread is counted by its maker, before it exists. It calls
// process_is_quiet_thread() first, and is counted out at its very end, after its
// thread_local objects are destroyed.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// The number of all threads of the process.
std::size_t process_thread_count() noexcept;

// Whether the only threads are this number of workers and the quiet ones. A quiet thread
// that has just ended, or is about to, does not count.
bool process_has_only(std::size_t workers) noexcept;

VIGIL_FOR_IO void process_count_quiet_threads(int change) noexcept;
// Has the calling thread counted out when it ends.
VIGIL_FOR_IO void process_is_quiet_thread() noexcept;
std::size_t process_quiet_threads() noexcept;

// For the fork handlers: what this file keeps is whole in the child.
void process_threads_lock() noexcept;
void process_threads_unlock() noexcept;
// Called in a child that has none of the quiet threads.
void process_threads_forget_quiet() noexcept;

}  // namespace VIGIL_DETAIL
