// Under an emulator that has threads of its own no deadlock is found.
#pragma once

#include "core/machine/process_threads.hpp"

#include <cstddef>

#include <doctest/doctest.h>

namespace vigil::testing_support {

// The threads that the process has before main(): more than one under an emulator that
// has threads of its own, which hide a deadlock as any thread of the program does.
inline const std::size_t threads_at_first = detail::process_thread_count();

// Whether such a thread hides deadlocks of this program; if so, says that the case skips.
inline bool is_deadlock_hidden() {
  if (threads_at_first <= 1) return false;
  MESSAGE("skipped: an emulator's thread in the process hides a deadlock");
  return true;
}

}  // namespace vigil::testing_support
