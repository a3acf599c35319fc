// A thread is listed for a moment after its end, even if it was joined.
#pragma once

#include "core/machine/process_threads.hpp"

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

namespace vigil::testing_support {

// Waits until count() is `most` at most; if it never is, the caller's check says so.
// Returns the last count.
template <class Count>
auto once_at_most(decltype(std::declval<Count&>()()) most, Count count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  auto n = count();
  for (; n > most && std::chrono::steady_clock::now() < end; n = count())
    std::this_thread::yield();
  return n;
}

// The number of the process's threads, by the same wait.
inline std::size_t threads_once_at_most(std::size_t most) {
  return once_at_most(most, [] { return detail::process_thread_count(); });
}

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
