// Finds fibers that wait with a std::mutex held. This is the library vigil-lock-check,
// for debugging.
//
//   int main() {
//     vigil::lock_check::install();
//     vigil::run(...);
//   }
//
// docs/guide/debugging.md shows a report, docs/guide/stuck.md what it sees.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_PUBLIC::lock_check {

// install_options: the settings of install(). Throws nothing. Thread safety: a plain
// value.
struct install_options {
  bool abort = false;  // end the program, with a core, after the first report
};

// From now on a fiber that waits, or yields, while it holds a lock of the operating
// system is reported on standard error: its number and name, where it locked, and where
// it waits, with the frames of both; once for each pair of places. The locks are the
// mutexes and read-write locks of pthread.h, of which std::mutex and its relatives and
// std::shared_mutex are made, locked from now on by a fiber. A lock that a wait for a
// std::condition_variable releases is not held. A pinned fiber is reported as well: it
// stays on its thread, but others that want the lock block their workers.
//
// The library defines the functions of pthread.h that lock, so linking it puts them in
// place, in front of the C library's or a sanitizer's. A report waits for the names of
// functions, 3 s at most, on the fiber's worker. Cost: each lock that a fiber takes reads
// 8 frames, which takes some microseconds, and 3 KiB of stack.
//
// The environment variable VIGIL_LOCK_CHECK=report or =abort does the same before main(),
// if the shared library is preloaded, or the static one linked whole.
//
// Throws nothing. Thread safety: any thread, at any time; a later call changes the
// options. Lifetime: for the rest of the program. Shutdown: the end of a run does not end
// it.
VIGIL_API void install(const install_options& options = {});

}  // namespace VIGIL_PUBLIC::lock_check
