// task_core: a task that was started: its coroutines, its waiter, and its place in the
// queue of ready tasks.
//
// A task is resumed by runners (task_service.hpp), one at a time. It is suspended in two
// steps, since its wait may end before the coroutine has left the runner's stack:
//
//   coroutine    opens the wait, leaves it where it is found, suspends itself
//   runner       park: running -> suspended; afterwards the task is not touched
//   deliver()    park: -> woken; from suspended, queues the task; from running, leaves
//                it at that: the runner finds it and goes on with the task
//
// TK1 park is exchanged once by the runner and once by deliver() for each wait, both
//     acq_rel. The second of the two resumes the coroutine, and sees what the first
//     wrote.
// TK2 A frame is destroyed when the outermost coroutine has ended, by the last owner: the
//     run of the task, or its handle. So no suspended coroutine is ever destroyed.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/wait/wait_reason.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/task_core.hpp>

#include <coroutine>
#include <cstdint>

namespace VIGIL_DETAIL {

class task_service;
struct fiber_view;

class task_core : public running_task {
 public:
  enum class park_word : std::uint8_t { running, suspended, woken };

  // The wish of the coroutine that has just suspended itself.
  enum class step : std::uint8_t { transfer, wait, yield, end };

  task_core(task_service& of,
            std::coroutine_handle<> outermost,
            task_frame& f,
            bool detached,
            const site& from) noexcept;
  task_core(const task_core&) = delete;
  task_core& operator=(const task_core&) = delete;

  bool must_stop() const noexcept;
  void request_stop() noexcept;
  // Gives up the handle of a task that runs on; false if it has ended.
  bool detach() noexcept;
  // Drops the run or the handle. True for the last of the two, which ends the frames and
  // the core: release() does.
  bool is_last_owner() noexcept;
  void release() noexcept;
  // Caller: holds lock(), and has read `joiner`; sets has_ended afterwards.
  void note_handler(unhandled_box* of_runtime) noexcept;
  void report() noexcept;
  // Ends the program: the message names the task, and says what it does wrong.
  [[noreturn]] void fatal_here(const char* what) const noexcept;
  // Copies what a dump shows, but for the time. Caller: keeps the task from ending.
  void show(fiber_view& s) const noexcept;

  // Guards the joiner and the end. It is there longer than the runtime.
  spinlock& lock() const noexcept;

  // How the outermost coroutine has ended.
  enum class ending : std::uint8_t { by_itself, by_stop, by_shutdown };

  // Written by the runner and by the coroutine, in turns.
  step wanted = step::transfer;
  atomic<park_word> park{park_word::running};
  atomic<bool> stop_flag{false};
  atomic<bool> has_ended{false};
  atomic<std::uint8_t> owners;
  ending ended = ending::by_itself;
  bool is_detached;                               // guarded by lock(), until has_ended
  atomic<wait_reason> reason{wait_reason::none};  // the dump's

  waiter own_waiter;
  task_service& service;
  const std::coroutine_handle<> outermost;
  task_frame& frame;

  union {
    open_wait* joiner = nullptr;  // until has_ended; guarded by lock()
    // Afterwards. With frame.error, which may be reported after the run, the task has a
    // reference of its own.
    unhandled_box* on_unhandled;
  };

  task_core* next_ready = nullptr;
  list_hook<task_core> among_all;

  // For those who look inside, as is `reason`.
  atomic<const void*> object{nullptr};
  atomic<nanos> since{0};
  std::uint64_t id = 0;
  [[no_unique_address]] const birth made_at;
  std::uint16_t stops_thrown = 0;  // in the room that made_at leaves

 private:
  [[noreturn]] void end_by(const char* what) const noexcept;
};

static_assert(sizeof(task_core) <= 168, "a million tasks: each costs its core and its frames");

}  // namespace VIGIL_DETAIL
