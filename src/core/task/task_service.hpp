// task_service: the tasks of one runtime, and the runners that resume them.
//
// A runner is a fiber of ours that takes ready tasks and resumes each until it waits, so
// no user code runs on a worker's own stack. A task that waits the way a fiber does keeps
// the runner, and another one takes the rest.
//
// TV1 While a task is ready, a runner is spare: about to look, and not inside a task. So
//     whoever queues a task, and a runner that enters one while others are ready, readies
//     a runner unless one is spare.
//     If there is no stack for one, it asks the runners of callbacks to lend theirs.
// TV2 A runner that is readied is spare from then on, until it enters a task or goes to
//     the idle ones; both under the lock.
// TV3 Each task counts as a fiber that is alive. One is started only if a runner is spare
//     or idle; if there is none, start() makes one, or throws. When the last task has
//     ended, the idle runners end, so the run can.
#pragma once

#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/worker/runtime_part.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/task/task_core.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class task_service final : public runtime_part {
 public:
  explicit task_service(scheduler& s) noexcept : sched_(s) {}

  // The one of the runtime, made if it has none. Throws std::bad_alloc.
  static task_service& of(scheduler& s);

  // Takes a new task in and makes it ready. Throws as make_fiber does, with nothing done.
  task_core* start(std::coroutine_handle<> outermost,
                   task_frame& f,
                   bool detached,
                   const site& from) VIGIL_EXCLUDES(lock_);
  // Makes a suspended task ready. Any thread; the last touch of the task.
  void make_ready(task_core& t) noexcept VIGIL_EXCLUDES(lock_);
  // Stops the runner that is inside the task, if one is: its wait as a fiber and each
  // later one there. Caller: keeps the task from ending.
  void stop_runner_of(const task_core& t) noexcept VIGIL_EXCLUDES(lock_);
  // The task whose code is on this fiber's stack; nullptr if none is.
  const task_core* task_on(const fiber& f) noexcept VIGIL_EXCLUDES(lock_);

  void stop_all() noexcept override VIGIL_EXCLUDES(lock_);

  bool has_tasks() noexcept override VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    return !all_.empty();
  }

  void write(dump_writer& out) noexcept override VIGIL_EXCLUDES(lock_);
  bool copy(shown_tasks& out) noexcept override VIGIL_EXCLUDES(lock_);

  scheduler& sched() const noexcept { return sched_; }

 private:
  friend struct debug_layout;

  // A runner, on its own stack.
  struct runner {
    explicit runner(fiber& f) noexcept : self(f) {}

    // Out of its task: a stop of that one is no longer for it. Caller: has the lock.
    void comes_out() noexcept {
      inside = nullptr;
      self.stop_flag.store(false);
    }

    fiber& self;
    const task_core* inside = nullptr;  // guarded by lock_
    list_hook<runner> hook;
  };

  static constexpr unsigned tasks_per_turn = 32;
  static constexpr std::size_t most_idle = 16;

  using ready_chain = chain<task_core, &task_core::next_ready>;
  using task_list = list<task_core, &task_core::among_all>;

  void body();
  void give_time() noexcept VIGIL_REQUIRES(lock_);
  bool run_turn(runner& own, unsigned most) VIGIL_REQUIRES(lock_);
  void put_stopped_first() noexcept VIGIL_REQUIRES(lock_);
  bool enter(runner& own, task_core& t) noexcept;
  bool run_until_it_waits(runner& own, task_core& t) noexcept;
  void leave(fiber& self, const task_core& t) noexcept;
  void finish(runner& own, task_core& t) noexcept;
  fiber& make_runner();
  void queue(task_core& t) noexcept VIGIL_EXCLUDES(lock_);
  void put_in_queue(task_core& t) noexcept VIGIL_REQUIRES(lock_);
  bool wants_spare() const noexcept VIGIL_REQUIRES(lock_);
  void ready_one() noexcept VIGIL_EXCLUDES(lock_);
  void ask_for_stack() noexcept VIGIL_EXCLUDES(lock_);
  void lend_stack() VIGIL_EXCLUDES(lock_);
  runner* find_inside(const task_core& t) noexcept VIGIL_REQUIRES(lock_);
  void copy_some(shown_tasks& out) const noexcept VIGIL_REQUIRES(lock_);
  task_core* pop() noexcept VIGIL_REQUIRES(lock_);

  scheduler& sched_;
  spinlock lock_{lock_rank::runners};
  ready_chain ready_ VIGIL_GUARDED_BY(lock_);
  fiber_chain idle_ VIGIL_GUARDED_BY(lock_);
  task_list all_ VIGIL_GUARDED_BY(lock_);
  list<runner, &runner::hook> runners_ VIGIL_GUARDED_BY(lock_);
  unsigned spare_ VIGIL_GUARDED_BY(lock_) = 0;
  const worker* readied_on_ VIGIL_GUARDED_BY(lock_) = nullptr;  // the last spare one
  bool asks_for_stack_ VIGIL_GUARDED_BY(lock_) = false;         // lend_stack() is to come
  unsigned inside_ VIGIL_GUARDED_BY(lock_) = 0;                 // runners that are inside a task
  std::uint64_t last_id_ VIGIL_GUARDED_BY(lock_) = 0;
};

// The task whose code calls, which is only to be compared with one that may be gone;
// nullptr if the caller is no task.
const task_core* task_of_caller() noexcept;

}  // namespace VIGIL_DETAIL
