// task_wait: the parts that only some waits have, outside the frame of the coroutine. How
// a task waits is told in task_wait.cpp.
#pragma once

#include "chan/select_core.hpp"
#include "chan/selecting.hpp"
#include "sched/wait/cancel_tree.hpp"
#include "sched/worker/scheduler.hpp"
#include "task/task_core.hpp"
#include "task/task_service.hpp"

#include <vigil/detail/config.hpp>

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace VIGIL_DETAIL {

// The coroutine that a task is resumed in while a select goes through rounds: only a
// coroutine can be suspended again.
class task_wait::round_loop {
 public:
  // A task_frame, so that debuggers find the coroutine that is resumed afterwards.
  struct promise_type : task_frame {
    promise_type(task_wait&, task_core& t, std::coroutine_handle<> h) noexcept {
      task = &t;
      awaiting = h;
    }

    round_loop get_return_object() noexcept {
      return round_loop(std::coroutine_handle<promise_type>::from_promise(*this));
    }

    std::suspend_always initial_suspend() const noexcept { return {}; }

    std::suspend_always final_suspend() const noexcept { return {}; }

    void return_void() const noexcept {}

    void unhandled_exception() const noexcept { std::terminate(); }
  };

  round_loop() noexcept = default;

  explicit round_loop(std::coroutine_handle<promise_type> c) noexcept : coroutine_(c) {}

  round_loop(round_loop&& other) noexcept : coroutine_(std::exchange(other.coroutine_, {})) {}

  round_loop& operator=(round_loop&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }

  ~round_loop() {
    if (coroutine_) coroutine_.destroy();
  }

  std::coroutine_handle<> coroutine() const noexcept { return coroutine_; }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

// The coroutine in which a task begins a wait after others. It ends with that, and frees
// itself.
class task_wait::late_start {
 public:
  struct promise_type : task_frame {
    promise_type(
        task_wait&, task_core& t, std::coroutine_handle<> h, select_case*, choice) noexcept {
      task = &t;
      awaiting = h;
    }

    late_start get_return_object() noexcept {
      return late_start(std::coroutine_handle<promise_type>::from_promise(*this));
    }

    std::suspend_always initial_suspend() const noexcept { return {}; }

    std::suspend_never final_suspend() const noexcept { return {}; }

    void return_void() const noexcept {}

    void unhandled_exception() const noexcept { std::terminate(); }
  };

  explicit late_start(std::coroutine_handle<promise_type> c) noexcept : coroutine_(c) {}

  std::coroutine_handle<> coroutine() const noexcept { return coroutine_; }

 private:
  const std::coroutine_handle<promise_type> coroutine_;
};

// A wait under a context.
struct task_wait::context_part {
  explicit context_part(const wait_limit& limit) noexcept : kept(limit) {}

  kept_limit kept;
  queued_waiter entry;
};

// A wait for several cases.
struct task_wait::select_part {
  std::optional<selecting> several;
  std::optional<context_part> under;  // if its limit has a context
  std::unique_ptr<kept_cases> kept;   // until it begins, if that is late
  shown_select shown = {};
  std::size_t taken = selecting::none;
  std::exception_ptr error;  // of a later round
  round_loop rounds;
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
