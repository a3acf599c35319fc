// A thread is listed for a moment after its end, even if it was joined.
#pragma once

#include "core/machine/process_threads.hpp"

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

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

}  // namespace vigil::testing_support
