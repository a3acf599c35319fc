// Two ways to wait on a word: the kernel's futex, and one that needs nothing but
// std::mutex and std::condition_variable. The build chooses (meson: watch); both are
// compiled and tested always.
//
//   wait      as futex_wait(): may return early for any reason
//   wake_one  as futex_wake_one(), and may wake others, too
//
// A signal handler may take no mutex, so the portable wake_one does nothing in one:
// once signals may come, each portable wait looks for itself every 20 ms.
#pragma once

#include "core/base/futex.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

enum class waker { thread, signal_handler };

struct VIGIL_FOR_IO kernel_words {
  static void wait(futex_word& word, std::uint32_t expected, nanos deadline) noexcept {
    futex_wait(word, expected, deadline);
  }

  static void wake_one(futex_word& word, waker = waker::thread) noexcept { futex_wake_one(word); }

  static void signals_may_come() noexcept {}
};

struct portable_words {
  static void wait(futex_word& word, std::uint32_t expected, nanos deadline) noexcept;
  static void wake_one(futex_word& word, waker origin = waker::thread) noexcept;
  // Called before the first signal handler is installed, on any thread; holds for good.
  static void signals_may_come() noexcept;
};

#ifdef VIGIL_PORTABLE_WATCH
using words = portable_words;
#else
using words = kernel_words;
#endif

}  // namespace VIGIL_DETAIL
