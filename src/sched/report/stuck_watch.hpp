// stuck_watch: options::stuck_limit, which says once that no worker gets on
// although somebody waits for one: workers that are blocked in a function-local
// static whose initialiser waits, in std::call_once, in a std::mutex, or that
// compute for ever.
//
// Nobody who is stuck can look, so a thread does, at the workers' counts of
// switches. There is one only while workers are awake: after some ticks in which all
// of them slept and nobody waited it ends, and who gets up has one started again.
// (docs/decisions/0015)
//
// The danger. The thread sees everybody asleep and ends, while a worker gets up,
// sees the thread and starts nothing: nobody would look at what that worker does.
// The rule, all of it sequentially consistent:
//
//   the thread                              a worker that gets up
//   K1 here_ = false                        K3 asleep_ - 1 (idle.hpp)
//   K2 look once more whether all sleep;    K4 look at here_; not there: change
//      if not, change here_ from false         here_ from false to true, join
//      to true and go on, or end if a          the old thread, start the next
//      worker has done so
//
// Either K1 comes before K4, and the worker starts one, or K3 comes before K2,
// and the thread goes on, unless that worker sleeps again.
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"
#include "sched/wait/note.hpp"

#include <cstdint>
#include <mutex>
#include <thread>

namespace vigil::inline VIGIL_ABI::detail {

class scheduler;

// How long, by the looks of one who looks once in each tick, somebody has waited
// while no worker has switched. It adds up ticks and not time, and begins anew
// after a look that came late by more than half a second: the process was stopped then,
// by SIGSTOP or a debugger, and its fibers with it.
class stuck_count {
 public:
  stuck_count(nanos limit, nanos tick) noexcept : limit_(limit), tick_(tick) {}

  // True once, when the limit is reached.
  bool look(nanos now, std::uint64_t switches, bool somebody_waits) noexcept;

 private:
  const nanos limit_;
  const nanos tick_;
  nanos last_look_ = 0;
  std::uint64_t switches_ = 0;
  bool waited_ = false;  // at the last look
  nanos counted_ = 0;
  bool said_ = false;
};

// Whether the run has been at rest for so long that nobody need look at it. Not after
// the first tick: a program that wakes once a second would start a thread each time.
// Who sleeps in an io_context runs its handlers there, and may never come out: while
// somebody waits that is no rest.
class stuck_rest {
 public:
  static constexpr int ticks_kept = 8;  // 4 s, unless the limit is below 2 s

  bool look(std::uint64_t switches, bool all_sleep, bool somebody_waits) noexcept {
    const bool rests = all_sleep && !somebody_waits && switches == switches_;
    switches_ = switches;
    ticks_ = rests ? ticks_ + 1 : 0;
    return ticks_ >= ticks_kept;
  }

 private:
  std::uint64_t switches_ = 0;
  int ticks_ = 0;
};

// Whether the thread is there: K1 to K4.
class stuck_presence {
 public:
  bool is_here() const noexcept { return here_.load(); }

  // K4. True: the caller starts the thread, which counts as there from now on.
  bool bring_back() noexcept {
    bool expected = false;
    return !here_.load() && here_.compare_exchange_strong(expected, true);
  }

  // Caller: the thread, which has seen everybody asleep. True: it ends.
  template <class F>
  bool leaves(F&& all_sleep) noexcept {
    here_.store(false);            // K1
    if (all_sleep()) return true;  // K2
    bool expected = false;
    return !here_.compare_exchange_strong(expected, true);
  }

 private:
  atomic<bool> here_{false};
};

class stuck_watch {
 public:
  // For one run. Starts no thread.
  stuck_watch(scheduler& s, nanos limit) noexcept;
  ~stuck_watch();
  stuck_watch(const stuck_watch&) = delete;
  stuck_watch& operator=(const stuck_watch&) = delete;

  // The run begins, or a worker has got up: before fibers run. Caller: that worker's
  // thread, on its own stack.
  void somebody_is_awake() noexcept {
    if (!presence_.is_here()) [[unlikely]]
      start();
  }

 private:
  void start() noexcept;
  void body() noexcept;
  bool all_sleep() const noexcept;
  void say() noexcept;

  scheduler& sched_;
  const nanos limit_;
  const nanos tick_;
  stuck_count count_;  // the thread's; of one after the other
  stuck_presence presence_;
  note end_;
  std::mutex lock_;     // who starts it, one after the other
  std::thread thread_;  // guarded by lock_
};

}  // namespace vigil::inline VIGIL_ABI::detail
