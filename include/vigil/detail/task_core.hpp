// The untyped side of task<T>, which the templates of task.hpp and co.hpp call.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/handle.hpp>
#include <vigil/detail/select_case.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>

namespace VIGIL_DETAIL {

class selecting;
class task_core;  // src/core/task/task_core.hpp
enum class outcome : std::uint8_t;
enum class wait_reason : std::uint8_t;

// The part of a task that its coroutines see.
struct running_task {
  // The coroutine that runs next: set by the one that suspends itself, before it does.
  std::coroutine_handle<> next;
};

// A coroutine of a task: the outermost one, or one that another awaits. The base of its
// promise.
struct task_frame {
  running_task* task = nullptr;
  std::coroutine_handle<> awaiting;  // empty: this is the outermost
  std::exception_ptr error;
};

// Starts the task whose outermost coroutine is given, in the runtime of the caller. If it
// throws, the coroutine is the caller's still.
// Throws wrong_place, std::bad_alloc, limit_reached.
VIGIL_API task_core* start_task(std::coroutine_handle<> outermost,
                                task_frame& frame,
                                bool detached,
                                const site& from);
// Called by the outermost coroutine as its last act: it is suspended for ever.
VIGIL_API void end_task(running_task& task) noexcept;

// --- handles
VIGIL_API bool has_ended(const task_core& t) noexcept;
// Returns true if the task has ended, false if the limit has come.
// Waits: throws stopped, wrong_place.
VIGIL_API bool wait_for_end(task_core* t, const wait_limit& limit);
VIGIL_API void request_stop(task_core& t) noexcept;
VIGIL_API std::uint64_t id_of(const task_core& t) noexcept;
// Called with a task that has ended: throws what has left its outermost coroutine.
VIGIL_API void rethrow_error(task_core& t);
// Gives up a handle; `joined`: the outcome has been taken.
VIGIL_API void let_go(task_core* t, bool joined) noexcept;
// Asks the task to stop, waits for its end and gives up the handle.
// Waits: throws nothing.
VIGIL_API void stop_and_join(task_core* t) noexcept;
VIGIL_API extern const case_table task_join_table;

// Whether the task has been asked to stop.
VIGIL_API bool must_stop(const running_task& t) noexcept;
// Lets other tasks and fibers go first, and then the coroutine.
VIGIL_API void yield_task(running_task& t) noexcept;
[[noreturn]] VIGIL_API void throw_task_stopped(running_task& t);

// One wait of a task, in the frame of the coroutine that waits: for the first of several
// cases, or for a time. The base of the waits of co.hpp. Small, since a frame has room
// for each of its waits.
class VIGIL_API task_wait {
 public:
  explicit task_wait(const wait_limit& limit = no_limit)
      : time_(limit.nanoseconds), timing_(limit.time) {
    if (limit.cancelled_by != nullptr) keep_context(limit);
  }

  ~task_wait();
  task_wait(const task_wait&) = delete;
  task_wait& operator=(const task_wait&) = delete;

  // --- one case, or none: a wait for the time alone
  // Takes the case if it is ready. True if it was: end() follows.
  bool look(select_case& c) noexcept;
  // Begins the wait: the coroutine `h`, which is suspended, goes on once it is over.
  // False if there is nothing to wait for, so that it goes on at once. end() follows in
  // both cases, unless this throws.
  bool begin(running_task& t, std::coroutine_handle<> h, select_case* c);
  // True if the case was taken, false if the time has come. Throws stopped, cancelled.
  bool end(select_case* c);

  // --- the first of several cases; the limit is theirs
  bool begin(running_task& t,
             std::coroutine_handle<> h,
             select_case* const* cases,
             std::size_t count,
             choice mode);
  std::size_t end_several();
  // Called before the cases go, if end_several() was not.
  void leave_cases() noexcept;

 private:
  struct context_part;
  struct select_part;
  class own_coroutine;

  // How far the wait has come. `late`: it begins after other tasks, since the count of
  // the turn has run out (src/core/sched/worker/turn_budget.hpp). `failed`: so it has
  // begun, and has thrown.
  enum class state : std::uint8_t { none, late, taken, open, failed };

  context_part* under() const noexcept { return is_select_ ? context_of_select() : one_context_; }

  context_part* context_of_select() const noexcept;

  void keep_context(const wait_limit& limit);
  void drop_parts() noexcept;
  bool queue_one(task_core& t, select_case& c, bool over, std::uint64_t& ticket);
  std::uint64_t open_sleep(task_core& t, wait_reason why);
  bool is_bounded(task_core& t, const wait_limit& l, std::uint64_t ticket, select_case* c);
  void take_back(select_case* c) noexcept;
  outcome close(select_case* c = nullptr) noexcept;
  void throw_if_ended(outcome ended);

  // --- several cases
  void takes(std::size_t index) noexcept;
  bool begin_now(task_core& t, std::coroutine_handle<> h, select_case* c);
  bool begin_select(task_core& t, std::coroutine_handle<> h, choice mode);
  bool begins_late(task_core& t, std::coroutine_handle<> h, select_case* c, choice mode);
  static own_coroutine begin_in_turn(
      task_wait& w, task_core& t, std::coroutine_handle<> h, select_case* c, choice mode);
  void fail() noexcept;
  [[noreturn]] void rethrow();
  bool end_open(select_case* c);
  bool begin_round(task_core& t, std::coroutine_handle<> h);
  bool end_round(task_core& t, std::coroutine_handle<> h) noexcept;
  static own_coroutine go_through_rounds(task_wait& w, task_core& t, std::coroutine_handle<> h);

  union {
    std::int64_t time_;         // until begin()
    task_core* task_;           // afterwards
    std::exception_ptr error_;  // once it has failed
  };

  union {
    context_part* one_context_ = nullptr;  // if it has one case and a context
    select_part* select_;                  // if it has several cases
  };

  wait_limit::timing timing_;
  state state_ = state::none;
  bool is_select_ = false;
  bool is_queued_ = false;
  bool is_timed_ = false;
};

}  // namespace VIGIL_DETAIL
