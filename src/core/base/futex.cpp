#include "core/base/futex.hpp"

#include <cerrno>
#include <ctime>

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace VIGIL_DETAIL {

void futex_wait(futex_word& word, std::uint32_t expected, nanos deadline) noexcept {
  static_assert(sizeof(futex_word) == sizeof(std::uint32_t));
  timespec until{};
  const bool timed = deadline != never;
  if (timed) {
    if (deadline < 0) deadline = 0;
    until.tv_sec = deadline / 1'000'000'000;
    until.tv_nsec = deadline % 1'000'000'000;
  }
  // FUTEX_WAIT_BITSET takes an absolute deadline: an interrupted wait that is
  // repeated cannot grow longer.
  ::syscall(SYS_futex,
            reinterpret_cast<std::uint32_t*>(&word),
            FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG,
            expected,
            timed ? &until : nullptr,
            nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

// Not inlined: a caller that parks may go on on another thread, which has another errno.
[[gnu::noinline]] void futex_wake_one(futex_word& word) noexcept {
  const int before = errno;
  ::syscall(SYS_futex,
            reinterpret_cast<std::uint32_t*>(&word),
            FUTEX_WAKE | FUTEX_PRIVATE_FLAG,
            1,
            nullptr,
            nullptr,
            0);
  errno = before;  // callers include signal handlers
}

unsigned long set_thread_timer_slack(unsigned long nanoseconds) noexcept {
  const int before = ::prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
  ::prctl(PR_SET_TIMERSLACK, nanoseconds, 0UL, 0UL, 0UL);
  return before < 0 ? 0 : static_cast<unsigned long>(before);
}

}  // namespace VIGIL_DETAIL
