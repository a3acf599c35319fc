// futex: waiting on a word until another thread changes it.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

using futex_word = atomic<std::uint32_t>;

// Sleeps while `word` holds `expected`, at most until `deadline` on CLOCK_MONOTONIC
// (`never`: without limit). May return early for any reason, so the caller looks at the
// word and the clock again and keeps the same absolute deadline. The kernel compares the
// word and queues the sleeper as one step, so a wake that follows a change of the word is
// never lost.
VIGIL_FOR_IO void futex_wait(futex_word& word, std::uint32_t expected, nanos deadline) noexcept;

// Wakes one sleeper. Touches only the address, never the word. Async-signal-safe.
VIGIL_FOR_IO void futex_wake_one(futex_word& word) noexcept;

// Sets by how many nanoseconds the kernel may delay the timeouts of the calling thread's
// sleeps (50 us by default; 0 means the default). Returns the earlier slack.
unsigned long set_thread_timer_slack(unsigned long nanoseconds) noexcept;

}  // namespace VIGIL_DETAIL
