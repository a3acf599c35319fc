// task_wait: the parts that only some waits have, outside the frame of the coroutine. How
// a task waits is told in task_wait.cpp.
#pragma once

#include "core/chan/selecting.hpp"
#include "core/sched/wait/cancel_tree.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/task/task_core.hpp"
#include "core/task/task_service.hpp"

#include <vigil/detail/config.hpp>

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace VIGIL_DETAIL {

// A coroutine of the library's own, which a task is resumed in: to begin a wait after
// others, or for the rounds of a select, since only a coroutine can be suspended again.
// It frees itself at its end.
class task_wait::own_coroutine {
 public:
  // A task_frame, so that debuggers find the coroutine that is resumed afterwards.
  struct promise_type : task_frame {
    template <class... Others>
    promise_type(task_wait&, task_core& t, std::coroutine_handle<> h, const Others&...) noexcept {
      task = &t;
      awaiting = h;
    }

    own_coroutine get_return_object() noexcept {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }

    std::suspend_always initial_suspend() const noexcept { return {}; }

    std::suspend_never final_suspend() const noexcept { return {}; }

    void return_void() const noexcept {}

    void unhandled_exception() const noexcept { std::terminate(); }
  };

  std::coroutine_handle<> coroutine;
};

// A wait under a context.
struct task_wait::context_part {
  explicit context_part(const wait_limit& limit) noexcept : kept(limit) {}

  kept_limit kept;
  queued_waiter entry;
};

// A wait for several cases.
struct task_wait::select_part {
  select_part() = default;
  select_part(const select_part&) = delete;
  select_part& operator=(const select_part&) = delete;

  ~select_part() {
    if (rounds) rounds.destroy();  // it was not needed
  }

  std::optional<selecting> several;
  std::optional<context_part> under;  // if its limit has a context
  std::unique_ptr<kept_cases> kept;   // until it begins, if that is late
  shown_select shown = {};
  std::size_t taken = selecting::none;
  std::exception_ptr error;        // of a later round
  outcome ended = outcome::open;   // how the last round has ended, if a coroutine went through them
  std::coroutine_handle<> rounds;  // until they are over
};

// Shows the wait in dumps.
inline void show(task_core& t, wait_reason why, const void* object) noexcept {
  // ordering: for dumps; nothing hangs on them.
  t.since.store(t.service.sched().clock.coarse_now(), order::relaxed);
  t.object.store(object, order::relaxed);  // ordering: as above
  t.reason.store(why, order::relaxed);     // ordering: as above
}

// TW1; taken back unless the wait has begun.
class announcement {
 public:
  announcement(task_core& t, std::coroutine_handle<> h) noexcept : task_(t) {
    t.next = h;
    t.wanted = task_core::step::wait;
  }

  ~announcement() {
    if (stands_) return;
    task_.reason.store(wait_reason::none, order::relaxed);  // ordering: for dumps
    task_.next = {};
    task_.wanted = task_core::step::transfer;
  }

  announcement(const announcement&) = delete;
  announcement& operator=(const announcement&) = delete;

  // The task may be gone: another thread may have resumed it.
  bool stand(bool begun) noexcept { return stands_ = begun; }

 private:
  task_core& task_;
  bool stands_ = false;
};

}  // namespace VIGIL_DETAIL
