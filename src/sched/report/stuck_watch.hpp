// stuck_watch: options::stuck_limit, which says once that no worker switches although a
// fiber waits for one: the workers are blocked, in a function-local static or a
// std::call_once whose initialiser waits or in a std::mutex, or compute for ever.
//
// A stuck worker cannot look, so a thread looks at the workers' counts of switches. It
// exists only while workers are awake: it ends after some ticks in which all of them
// slept and no fiber waited, and a worker that gets up starts it again.
// (docs/decisions/0015)
//
// The danger. The thread sees all workers asleep and ends, while a worker gets up, sees
// the thread and starts nothing: nobody would look at what that worker does.
// The rule, all of it sequentially consistent:
//
//   the thread                               a worker that gets up
//   SK1 here_ = false                        SK3 asleep_ - 1 (idle.hpp)
//   SK2 look once more whether all sleep;    SK4 look at here_; not there: change
//       if not, change here_ from false          here_ from false to true, join
//       to true and go on, or end if a           the old thread, start the next
//       worker has done so
//
// Either SK1 comes before SK4, and the worker starts one, or SK3 comes before SK2,
// and the thread goes on, unless that worker sleeps again.
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"
#include "sched/idle.hpp"
#include "sched/ready_work.hpp"
#include "sched/wait/note.hpp"

#include <cstdint>
#include <mutex>
#include <thread>

namespace VIGIL_DETAIL {

class scheduler;

// Counts how long a fiber has waited while no worker has switched, as seen by one look in
// each tick. It adds up ticks, not time, and begins anew after a look that came late by
// more than half a second: then the process was stopped, by SIGSTOP or a debugger, and
// its fibers with it.
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
  bool reported_ = false;
};

// Decides whether the run has been at rest for so long that no thread need look at it.
// One tick is not enough: a program that wakes once a second would start a thread each
// time. While a fiber waits it is not at rest: a worker that sleeps in an io_context runs
// its handlers there, and may never come out.
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

// Whether the thread is there: SK1 to SK4.
class stuck_presence {
 public:
  bool is_here() const noexcept { return here_.load(); }

  // SK4. True if the caller must start the thread, which counts as there from now on.
  bool bring_back() noexcept {
    bool expected = false;
    return !here_.load() && here_.compare_exchange_strong(expected, true);
  }

  // Caller: the thread, which has seen all workers asleep. True if it must end.
  template <class F>
  bool leaves(F&& all_sleep) noexcept {
    here_.store(false);            // SK1
    if (all_sleep()) return true;  // SK2
    bool expected = false;
    return !here_.compare_exchange_strong(expected, true);
  }

 private:
  atomic<bool> here_{false};
};

class stuck_watch {
 public:
  struct neighbours {
    const worker_list& workers;
    const idle_workers& idle;
    ready_work& work;
  };

  // Watches one run. Starts no thread yet.
  stuck_watch(const neighbours& of, nanos limit) noexcept;
  ~stuck_watch();
  stuck_watch(const stuck_watch&) = delete;
  stuck_watch& operator=(const stuck_watch&) = delete;

  // Called before fibers run, when the run begins or a worker has got up. Caller: that
  // worker's thread, on its own stack.
  void somebody_is_awake() noexcept {
    if (!presence_.is_here()) [[unlikely]]
      start();
  }

 private:
  void start() noexcept;
  void body() noexcept;
  bool all_sleep() const noexcept;
  void report() noexcept;

  const neighbours of_;
  const nanos limit_;
  const nanos tick_;
  stuck_count count_;  // for the present thread alone
  stuck_presence presence_;
  note end_;
  std::mutex lock_;     // held while the thread is started or joined
  std::thread thread_;  // guarded by lock_
};

}  // namespace VIGIL_DETAIL
