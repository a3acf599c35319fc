#include "inspect/stuck_signal.hpp"

#include "core/base/assert.hpp"
#include "core/base/atomic.hpp"
#include "core/sched/wait/note.hpp"
#include "inspect/asking_signal.hpp"
#include "inspect/own_thread.hpp"

#include <vigil/leaks.hpp>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>

#include <pthread.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// Lives for ever: a handler may be in it. Each process has its own; that of the parent is
// left as fork() found it: without its thread, and perhaps with its lock held.
class stuck_reporter {
 public:
  static stuck_reporter& of_process() {
    stuck_reporter* present = the.load();
    while (present == nullptr || present->process_ != ::getpid()) {
      std::unique_ptr<stuck_reporter> made(new stuck_reporter(present));
      if (the.compare_exchange_strong(present, made.get())) return *made.release();
    }
    return *present;
  }

  static void check(int number) {
    if (number != 0) check_asking_signal("install", number, &on_signal);
  }

  void listen(int number) {
    const std::lock_guard guard(lock_);
    if (number != 0 && !has_thread_) {
      start_own_thread([this] {
        ::pthread_setname_np(::pthread_self(), "vigil/stuck");
        body();
      });
      has_thread_ = true;
    }
    take_asking_signal(number, signal_.exchange(number), &on_signal);
  }

 private:
  explicit stuck_reporter(stuck_reporter* before) noexcept
      : before_(before), signal_(before != nullptr ? before->signal_.load() : 0) {}

  static void on_signal(int number) {
    const int error_number = errno;
    stuck_reporter& r = *the.load();
    if (r.signal_.load() != number) {
      act_by_default(number, &on_signal);
    } else if (r.process_ != ::getpid()) {
      warn("signal %d reports no stuck fibers in a child of fork() that has not called install()",
           number);
    } else {
      r.is_asked_.store(true);
      r.wake_.wake(waker::signal_handler);
    }
    errno = error_number;
  }

  [[noreturn]] void body() noexcept {
    for (;;) {
      wake_.clear();
      if (is_asked_.exchange(false)) report();
      wake_.sleep_until(never);
    }
  }

  static void report() noexcept {
    try {
      inspect::dump_stuck_fibers(stderr);
    } catch (const std::exception& e) {
      warn("stuck fibers are not reported: %s", e.what());
    }
  }

  static constinit atomic<stuck_reporter*> the;

  [[maybe_unused]] stuck_reporter* const before_;  // the parent's, for a leak checker
  const pid_t process_ = ::getpid();
  std::mutex lock_;
  atomic<int> signal_;  // 0: none
  bool has_thread_ = false;
  note wake_;
  atomic<bool> is_asked_{false};
};

constinit atomic<stuck_reporter*> stuck_reporter::the{nullptr};

}  // namespace

void check_stuck_signal(int signal) {
  stuck_reporter::check(signal);
}

void report_stuck_by(int signal) {
  stuck_reporter::of_process().listen(signal);
}

}  // namespace VIGIL_DETAIL
