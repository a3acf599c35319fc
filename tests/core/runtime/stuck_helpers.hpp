// Helpers that the tests of options::stuck_limit share.
#pragma once

#include "core/sched/worker/scheduler.hpp"
#include "support/in_runtime.hpp"
#include "support/text_of.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

namespace vigil::testing_support {

inline constexpr const char* no_progress = "no worker has switched to another fiber for ";

// Short enough for a test, and longer than a busy machine keeps a thread waiting: the
// report, which comes once, must not be used up before the program is stuck.
inline options watched(std::size_t workers,
                       std::chrono::nanoseconds limit = std::chrono::seconds(1)) {
  options o;
  o.workers = workers;
  o.stuck_limit = limit;
  return o;
}

// Passes on what this process writes to its standard error, up to the text and one whole
// line after it; then calls f.
template <class F>
class after_report {
 public:
  after_report(std::string text, F f) : text_(std::move(text)), f_(std::move(f)) {
    if (kept_ < 0 || ::pipe(ends_) != 0 || ::dup2(ends_[1], 2) < 0) std::abort();
    reader_ = std::thread([this] { read(); });
  }

  ~after_report() {
    ::dup2(kept_, 2);
    ::close(ends_[1]);
    reader_.join();
  }

 private:
  void read() {
    std::string seen;
    bool reported = false;
    char some[256];
    for (ssize_t n; (n = ::read(ends_[0], some, sizeof some)) > 0;) {
      if (::write(kept_, some, static_cast<std::size_t>(n)) != n) std::abort();
      seen.append(some, static_cast<std::size_t>(n));
      const auto at = seen.find(text_);
      if (reported || at == std::string::npos) continue;
      if (seen.find('\n', at) == std::string::npos) continue;
      reported = true;
      f_();
    }
  }

  const std::string text_;
  F f_;
  int kept_ = ::dup(2);
  int ends_[2] = {-1, -1};
  std::thread reader_;
};

[[noreturn]] inline void leave() {
  std::fflush(nullptr);
  ::_exit(0);
}

// Whether the overseer of the runtime looks for stuck workers. Any thread, once the run
// has begun.
class attention {
 public:
  // Caller: a fiber of that runtime.
  void begins() { by_.store(&detail::current_scheduler()->idle().overseen); }

  void await_rest() const {
    while (by_.load() == nullptr || by_.load()->attends())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  bool is_paid() const { return by_.load()->attends(); }

 private:
  std::atomic<const detail::oversight*> by_{nullptr};
};

}  // namespace vigil::testing_support
