// overseer: one thread for each run, which notices what the workers are too busy to see.
//
// Called (oversight.hpp), it looks at the work that is left to workers in user code while
// another one sleeps: ready fibers and callbacks, and a watch that is free although I/O
// or a deadline is awaited. It wakes a sleeper for what it finds left at two looks: a
// fiber, by a worker that has not switched in between; a callback or the watch, if none
// has; a deadline or a look for I/O that is overdue at both. When nothing is left and
// nobody has switched since its last look, it rests: it no longer wakes for this.
//
// It runs no fiber, fires no timer, and sleeps to no timer's deadline. In rhythms of
// their own it looks for stuck workers (stuck_watch) and slow fibers (slow_fibers), and
// gives back the memory of stacks (stack_decay).
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/idle/oversight.hpp"
#include "core/sched/overseer/slow_fiber.hpp"
#include "core/sched/overseer/stuck_watch.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <optional>
#include <thread>
#include <vector>

namespace VIGIL_DETAIL {

// The work that is left to workers in user code, as seen by one look after the other.
class left_work {
 public:
  explicit left_work(scheduler& of) : sched_(of), seen_(of.workers().size()) {}

  struct found {
    bool moved = false;  // a worker has switched since the last look
    bool some = false;   // something is left; while a worker looks, nothing is
    bool still = false;  // it was left at the last look already, and nobody sees to it
  };

  found look(nanos now) noexcept;

 private:
  struct one {
    unsigned long switches = 0;
    bool had_ready = false;  // at the last look
  };

  bool is_beside_a_sleeper() const noexcept;
  nanos watch_is_wanted_at() const noexcept;

  scheduler& sched_;
  std::vector<one> seen_;
  bool some_in_common_ = false;  // at the last look
  nanos overdue_ = never;        // at the last look; never: nothing was
};

class overseer {
 public:
  // Whether a run needs one. A guest keeps to its host's thread, and lets its stacks cool
  // when it rests.
  static bool is_needed(const scheduler& s) noexcept;

  // Starts the thread, which looks at once. Throws std::system_error, std::bad_alloc.
  explicit overseer(scheduler& of);
  ~overseer();
  overseer(const overseer&) = delete;
  overseer& operator=(const overseer&) = delete;

 private:
  void body() noexcept;
  nanos look_at_left(nanos now) noexcept;

  scheduler& sched_;
  oversight& by_;
  std::optional<stuck_watch> stuck_;
  std::optional<slow_fibers> slow_;
  left_work left_;
  nanos interval_ = 0;  // 0: it rests
  nanos next_look_ = 0;
  std::thread thread_;
};

}  // namespace VIGIL_DETAIL
