#include "core/clocks/step_listener.hpp"

#include "core/base/assert.hpp"
#include "core/base/clock_source.hpp"
#include "core/machine/process_threads.hpp"
#include "core/machine/without_signals.hpp"
#include "core/sched/process/process_fork.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

constexpr nanos far_ahead = never;
constexpr nanos long_ago = 1;
constexpr nanos soon = 10'000'000;

}  // namespace

step_listener::~step_listener() {
  is_over();
}

void step_listener::begin() {
  const std::lock_guard guard(lock_);
  if (over_) throw runtime_gone("vigil: a timer on wall or boot time: its runtime has ended");
  if (pending_ == 0) {
    if (descriptor_ >= 0) {
      set(far_ahead);  // from the end of `linger` (SL2)
    } else {
      start();
    }
  }
  ++pending_;
}

void step_listener::end() noexcept {
  const std::lock_guard guard(lock_);
  if (--pending_ == 0 && descriptor_ >= 0) set(saturating_add(read_clock(CLOCK_REALTIME), linger));
}

// Caller: holds the lock, as in set().
void step_listener::start() {
  if (thread_.joinable()) thread_.join();
  descriptor_ = ::timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
  if (descriptor_ < 0) {
    throw std::system_error(errno,
                            std::generic_category(),
                            "vigil: a timer on wall or boot time needs a timerfd, and there is "
                            "none to be had (raise ulimit -n); nothing was armed");
  }
  set(far_ahead);
  process_count_own_threads(1);
  process_count_quiet_threads(1);  // it starts nothing
  try {
    const without_signals meanwhile;
    thread_ = std::thread([this] {
      process_is_quiet_thread();
      ::pthread_setname_np(::pthread_self(), "vigil/clocks");
      body();
    });
  } catch (...) {
    process_count_quiet_threads(-1);
    process_count_own_threads(-1);
    ::close(std::exchange(descriptor_, -1));
    throw;
  }
}

// A step that the kernel has noted meanwhile makes this fail with ECANCELED, but the
// descriptor is set.
void step_listener::set(nanos wall_time) noexcept {
  constexpr nanos second = 1'000'000'000;
  itimerspec to{};
  to.it_value.tv_sec = static_cast<std::time_t>(std::max(wall_time, long_ago) / second);
  to.it_value.tv_nsec = static_cast<long>(std::max(wall_time, long_ago) % second);
  constexpr int flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
  if (::timerfd_settime(descriptor_, flags, &to, nullptr) == 0 || errno == ECANCELED) return;
  fatal(
      "the timerfd by which vigil hears steps of the wall clock: %s; the program must not close "
      "descriptors that it has not opened",
      std::strerror(errno));
}

void step_listener::body() noexcept {
  int descriptor = -1;
  {
    const std::lock_guard guard(lock_);
    descriptor = descriptor_;
    thread_id_ = ::gettid();
  }
  for (;;) {
    std::uint64_t count = 0;
    if (::read(descriptor, &count, sizeof count) < 0 && errno == EINTR) continue;
    {
      const std::lock_guard guard(lock_);
      if (over_ || pending_ == 0) {  // SL2
        thread_id_ = 0;
        ::close(std::exchange(descriptor_, -1));
        process_count_own_threads(-1);
        return;
      }
      set(far_ahead);  // SL3
    }
    if (tell_(argument_)) continue;
    const std::lock_guard guard(lock_);
    if (!over_) set(saturating_add(read_clock(CLOCK_REALTIME), soon));
  }
}

void step_listener::is_over() noexcept {
  std::thread last;
  {
    const std::lock_guard guard(lock_);
    over_ = true;
    if (descriptor_ >= 0) set(long_ago);
    std::swap(last, thread_);
  }
  if (last.joinable()) last.join();
}

void step_listener::pretend_step() noexcept {
  const std::lock_guard guard(lock_);
  if (descriptor_ >= 0) set(long_ago);
}

int step_listener::thread_id() const noexcept {
  const std::lock_guard guard(lock_);
  return thread_id_;
}

}  // namespace VIGIL_DETAIL
