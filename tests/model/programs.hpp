// Helpers that the programs of the model tests share: a runtime of a few workers, and
// ways to bring its workers to rest or to keep them busy.
#pragma once

#include "core/base/clock_source.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "explorer/explorer.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

namespace programs {

inline vigil::options workers(unsigned n) {
  vigil::options o;
  o.workers = n;
  o.dump_on_sigquit = false;
  o.stop_limit = std::chrono::nanoseconds::max();  // the explorer's clock may jump
  o.stuck_limit = std::chrono::nanoseconds(0);
  o.warm_stacks = 0;  // so one worker has no overseer
  return o;
}

// A deadlock that is found, rightly or not, ends the run.
inline vigil::options strict_workers(unsigned n) {
  vigil::options o = workers(n);
  o.deadlock = vigil::on_deadlock::fatal;
  return o;
}

// Runs f, and returns whether a deadlock was reported.
template <class Runtime, class F>
bool reports_deadlock(Runtime& rt, F&& f) {
  try {
    rt.run(f);
  } catch (const vigil::deadlock&) {
    return true;
  }
  return false;
}

// Runs f and requires that no deadlock is reported, which would be false.
template <class Runtime, class F>
void run_without_deadlock(Runtime& rt, F&& f) {
  model::require(!reports_deadlock(rt, f), "no deadlock is reported");
}

// Plain threads take part as well: no deadlock is reported.
template <class F>
void run_with_outside_work(unsigned n, F&& f) {
  vigil::runtime rt(workers(n));
  const vigil::work_guard outside = rt.make_work_guard();
  rt.run(f);
}

// Caller: the main fiber of two workers, which stays awake.
inline void let_the_other_rest() {
  auto& idle = vigil::detail::current_scheduler()->idle();
  model::wait_until([&] { return idle.asleep() == 1; });
}

// Lets time go on until nothing is pending any more and everything that fired has run.
// Caller: as above.
inline void let_time_pass() {
  using vigil::detail::never;
  auto& sched = *vigil::detail::current_scheduler();
  model::wait_until([&] {
    return sched.idle().asleep() == 1 && sched.idle().earliest() == never &&
           sched.board.next_deadline.load() == never && !sched.timers().has_callbacks();
  });
}

// A fiber waits here until another one opens it: park and ready, and nothing else.
class turnstile {
 public:
  turnstile() : fiber_(*vigil::detail::current_fiber()) {}

  void wait() { vigil::detail::park(vigil::detail::wait_reason::test); }

  void open() { vigil::detail::ready(fiber_); }

 private:
  vigil::detail::fiber& fiber_;
};

// Keeps a worker busy, as a user's long computation does.
class gate {
 public:
  void enter() {
    entered_.store(true, std::memory_order_release);
    model::wait_until([this] { return open_.load(std::memory_order_relaxed); });
  }

  // Waits until a thread or fiber is in it.
  void await() {
    model::wait_until([this] { return entered_.load(std::memory_order_relaxed); });
  }

  void open() { open_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> entered_{false};
  std::atomic<bool> open_{false};
};

// A time of the explorer's clock that a thread leaves for another one, without an access
// to memory as far as the explorer is concerned.
class moment {
 public:
  void comes() {
    const vigil::detail::nanos now = vigil::detail::monotonic_now();
    set(now);
  }

  __attribute__((no_sanitize("thread"), noinline)) vigil::detail::nanos when() const {
    return when_;
  }

 private:
  __attribute__((no_sanitize("thread"), noinline)) void set(vigil::detail::nanos to) { when_ = to; }

  vigil::detail::nanos when_ = vigil::detail::never;
};

// Keeps its worker until another thread has set the flag.
inline void busy_until(const std::atomic<bool>& set) {
  model::wait_until([&] { return set.load(); });
  static_cast<void>(set.load());  // everything done before is seen
}

// Runs `body` as the main fiber once all other workers sleep. A work guard holds `rt`:
// plain threads are about to act.
template <class F>
void when_others_sleep(unsigned n, F&& body) {
  vigil::runtime rt(strict_workers(n));
  const vigil::work_guard guard = rt.make_work_guard();
  rt.run([&] {
    vigil::sleep_for(std::chrono::milliseconds(1));
    body(rt);
  });
}

inline constexpr auto for_ever = std::chrono::hours::max();

// A window from the middle of a run to its end.
using long_window = std::optional<model::window>;

// Sleeps until it is stopped, and notes that it was.
inline void sleep_until_stopped(bool& stopped) {
  try {
    vigil::sleep_for(for_ever);
  } catch (const vigil::stopped&) {
    stopped = true;
    throw;
  }
}

// Counts its instances: each must end once.
struct counted {
  explicit counted(std::atomic<int>& n) : alive(&n) { alive->fetch_add(1); }

  counted(counted&& other) noexcept : alive(std::exchange(other.alive, nullptr)) {}

  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;

  ~counted() {
    if (alive != nullptr) alive->fetch_sub(1);
  }

  std::atomic<int>* alive;
};

}  // namespace programs
