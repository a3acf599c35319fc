// Tasks: coroutines of C++20 on the workers, timers and channels of fibers.
//
//   vigil::task<int> answer(vigil::receiver<int> questions) {
//     const std::optional<int> q = co_await vigil::co::recv(questions);
//     co_await vigil::co::sleep_for(10ms);
//     co_return q.value_or(0) + 1;
//   }
//
//   vigil::task_handle<int> t = vigil::spawn(answer(questions));
//   int a = t.join();               // on a fiber or a thread; in a task: co_await co::join(t)
//
// A task has no stack. It runs on a fiber of the library, a runner, from one co_await to
// the next, and may go on on another thread. The waits of co.hpp suspend it. A wait of a
// fiber works in a task as well, but keeps the runner's stack. Values of fiber_local end
// with the next co_await and with the task, and guards of this_fiber must.
//
// co_await runs another task<T> as a part of this task; spawn() and go() start it as one
// of its own. A task<T> that was called, and nothing else, runs nothing. A suspended task
// is never destroyed: a stop, a context and the end of the run leave co_await as
// `stopped` and `cancelled`, as they leave a wait of a fiber.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/task_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <concepts>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

template <class T = void>
class task;

namespace detail {

// A wait that a task may co_await: it is told which task it is.
template <class A>
concept task_awaitable = requires(A& a, running_task& t, std::coroutine_handle<> h) {
  { a.await_suspend(t, h) } -> std::same_as<bool>;
};

// The last act of a coroutine of a task.
struct final_of_task {
  bool await_ready() const noexcept { return false; }

  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> h) const noexcept {
    task_frame& f = h.promise();
    f.task->next = f.awaiting;
    if (!f.awaiting) end_task(*f.task);
  }

  void await_resume() const noexcept {}
};

// Awaits a wait of co.hpp, which stays where it is: it can be neither moved nor copied.
template <class A>
struct await_in_place {
  bool await_ready() { return wait.await_ready(); }

  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    return wait.await_suspend(*h.promise().task, h);
  }

  decltype(auto) await_resume() { return wait.await_resume(); }

  A& wait;
};

template <class T>
class await_task;

class task_promise_base : public task_frame {
 public:
  std::suspend_always initial_suspend() const noexcept { return {}; }

  final_of_task final_suspend() const noexcept { return {}; }

  void unhandled_exception() noexcept { error = std::current_exception(); }

  template <task_awaitable A>
    requires(!std::is_lvalue_reference_v<A>)
  auto await_transform(A&& wait) const noexcept {
    return await_in_place<A>{wait};
  }

  template <class T>
  await_task<T> await_transform(vigil::task<T>&& child) const;

  template <class A>
  std::suspend_never await_transform(const A&) const noexcept {
    static_assert(!sizeof(A),
                  "co_await in a vigil::task takes a task<T> that is moved from (std::move), or "
                  "a wait of vigil/co.hpp or vigil/io/co.hpp, made in the same expression: "
                  "co::join(handle), co::recv(channel), io::co::spawned(executor, awaitable)");
    return {};
  }
};

template <class T>
class task_promise : public task_promise_base {
 public:
  vigil::task<T> get_return_object() noexcept;

  template <class U = T>
    requires std::convertible_to<U&&, T>
  void return_value(U&& value) {
    result.emplace(std::forward<U>(value));
  }

  std::optional<T> result;
};

template <>
class task_promise<void> : public task_promise_base {
 public:
  vigil::task<void> get_return_object() noexcept;

  void return_void() noexcept {}
};

// Takes the result of a coroutine that has ended without an exception.
template <class T>
T take_result(task_promise<T>& p) {
  return *std::move(p.result);
}

inline void take_result(task_promise<void>&) noexcept {}

// Throws wrong_place.
[[noreturn]] VIGIL_API void throw_empty_task();
// The same for an empty handle, and in that task itself.
VIGIL_API void check_task_join(task_core* t);

}  // namespace detail

// task<T>: a coroutine that has not begun. Can be moved. Throws wrong_place where an
// empty one is started or awaited. Thread safety: one fiber, task or thread at a time.
// Lifetime: parameters live in the frame, until the task has ended; captures of a lambda
// live in the lambda, so pass arguments instead. A task<T> that is dropped runs nothing.
// Shutdown: its waits throw `stopped`; a suspended task is never destroyed. Cost: its
// frame, and 176 bytes once it runs; no stack. Behaviour: Asio's awaitable<T>, which
// co_spawn starts.
template <class T>
class [[nodiscard]] task {
  static_assert(std::is_void_v<T> || std::is_object_v<T>,
                "task<T>: T must be an object type or void; return a pointer or a "
                "std::reference_wrapper for references");

 public:
  using value_type = T;
  using promise_type = detail::task_promise<T>;

  task(task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, {})) {}

  task& operator=(task other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }

  ~task() {
    if (coroutine_) coroutine_.destroy();
  }

  // For the library only.
  explicit task(std::coroutine_handle<promise_type> c) noexcept : coroutine_(c) {}

  std::coroutine_handle<promise_type> release() noexcept { return std::exchange(coroutine_, {}); }

  std::coroutine_handle<promise_type> coroutine() const noexcept { return coroutine_; }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

namespace detail {

template <class T>
vigil::task<T> task_promise<T>::get_return_object() noexcept {
  return vigil::task<T>(std::coroutine_handle<task_promise<T>>::from_promise(*this));
}

inline vigil::task<void> task_promise<void>::get_return_object() noexcept {
  return vigil::task<void>(std::coroutine_handle<task_promise<void>>::from_promise(*this));
}

// Runs another coroutine as a part of this task.
template <class T>
class await_task {
 public:
  await_task(vigil::task<T>&& child, running_task* within)
      : child_(std::move(child)), task_(within) {
    if (!child_.coroutine()) throw_empty_task();
  }

  bool await_ready() const noexcept { return false; }

  void await_suspend(std::coroutine_handle<> h) const noexcept {
    auto& frame = child_.coroutine().promise();
    frame.task = task_;
    frame.awaiting = h;
    task_->next = child_.coroutine();
  }

  T await_resume() {
    auto& p = child_.coroutine().promise();
    if (p.error != nullptr) std::rethrow_exception(std::move(p.error));
    return take_result(p);
  }

 private:
  vigil::task<T> child_;
  running_task* const task_;
};

template <class T>
await_task<T> task_promise_base::await_transform(vigil::task<T>&& child) const {
  return await_task<T>(std::move(child), this->task);
}

}  // namespace detail

// task_handle<T>: the handle of a task that was started, and the right to its result. Can
// be moved. If it was neither joined nor detached, the destructor asks the task to stop
// and waits for it, as that of a fiber does; an error of the task then goes to
// options::on_unhandled.
//
// Throws what the task threw, from join(), and what is said there. Thread safety: one
// fiber, task or thread at a time. Lifetime: a handle may outlive its runtime, whose
// tasks have all ended. Shutdown: as for fiber. Cost: as for task.
template <class T = void>
class [[nodiscard]] task_handle {
 public:
  using value_type = T;

  // Makes an empty handle: joinable() is false.
  task_handle() noexcept = default;

  task_handle(task_handle&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), promise_(other.promise_) {}

  task_handle& operator=(task_handle&& other) noexcept {
    if (this != &other) {
      if (core_ != nullptr) detail::stop_and_join(core_);
      core_ = std::exchange(other.core_, nullptr);
      promise_ = other.promise_;
    }
    return *this;
  }

  ~task_handle() {
    if (core_ != nullptr) detail::stop_and_join(core_);
  }

  // True until join() or detach().
  bool joinable() const noexcept { return core_ != nullptr; }

  // Waits until the task has ended, and returns its result or throws its exception. In a
  // task it keeps the runner's stack meanwhile: co_await co::join(handle) does not.
  //
  // Throws `cancelled` if the task ended by `stopped`; wrong_place if the handle is empty
  // or is being joined already, and in the task itself; and `stopped` if the caller is
  // asked to stop while it waits (the handle then stays joinable).
  T join() { return join_within(detail::no_limit); }

  // The same; throws `cancelled` when ctx is done, and the handle stays joinable.
  T join(const context& ctx) { return join_within(detail::cancelled_by(ctx)); }

  // The same with a timeout, or a deadline of any clock: true if the task has ended, so
  // that join() will not wait. A zero or negative timeout only looks.
  template <detail::duration_argument D>
  [[nodiscard]] bool join_for(const D& timeout) {
    return detail::wait_for_end(core_, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool join_until(const Time& t) {
    return detail::wait_for_end(core_, detail::until(t));
  }

  // Gives up the handle; the task goes on. An exception that leaves it from now on goes
  // to options::on_unhandled.
  void detach() {
    if (core_ == nullptr) detail::throw_empty_task();
    detail::let_go(std::exchange(core_, nullptr), false);
  }

  // Asks the task to stop: its current wait and each later one throws `stopped`. Returns
  // at once. Has no effect on a task that has ended.
  void request_stop() noexcept {
    if (core_ != nullptr) detail::request_stop(*core_);
  }

  // The task's number, as in the dump; 0 for an empty handle.
  std::uint64_t id() const noexcept { return core_ == nullptr ? 0 : detail::id_of(*core_); }

  // For the library only.
  task_handle(detail::task_core* core, detail::task_promise<T>& promise) noexcept
      : core_(core), promise_(&promise) {}

  detail::task_core* core() const noexcept { return core_; }

  // Takes the outcome of a task that has ended.
  T take() {
    struct holder {
      ~holder() { detail::let_go(core, true); }

      detail::task_core* core;
    } const ended{std::exchange(core_, nullptr)};

    detail::rethrow_error(*ended.core);
    return detail::take_result(*promise_);
  }

 private:
  T join_within(const detail::wait_limit& limit) {
    static_cast<void>(detail::wait_for_end(core_, limit));
    return take();
  }

  detail::task_core* core_ = nullptr;
  detail::task_promise<T>* promise_ = nullptr;
};

template <class T>
struct detail::ends_of_handle<task_handle<T>> {
  static any_end end_of(task_handle<T>& h) noexcept { return {&end_of_task, h.core()}; }
};

// Starts a task in the runtime of the caller, and returns the handle that joins it.
// Throws wrong_place on a thread without a runtime, and for a task<T> that was moved
// from; limit_reached or std::bad_alloc if there is no memory, or no stack for the first
// runner. Thread safety: any fiber. Lifetime: that of the handle. Shutdown: that of task.
// Cost: that of task.
template <class T>
task_handle<T> spawn(task<T> of, const site& from = site::current()) {
  if (!of.coroutine()) detail::throw_empty_task();
  auto& promise = of.coroutine().promise();
  detail::task_core* const core = detail::start_task(of.coroutine(), promise, false, from);
  static_cast<void>(of.release());
  return task_handle<T>(core, promise);
}

// The same without a handle. An exception that leaves the task goes to
// options::on_unhandled; its result is dropped.
template <class T>
void go(task<T> of, const site& from = site::current()) {
  if (!of.coroutine()) detail::throw_empty_task();
  detail::start_task(of.coroutine(), of.coroutine().promise(), true, from);
  static_cast<void>(of.release());
}

}  // namespace VIGIL_PUBLIC
