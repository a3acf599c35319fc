// The waits of tasks, named as those of fibers are.
//
//   co_await vigil::co::sleep_for(1s);
//   std::optional<int> v = co_await vigil::co::recv(numbers);
//   co_await vigil::co::select(vigil::on_recv(lines, [&](auto line) { … }),
//                              vigil::on_timeout(1s, [&] { … }));
//
// Each does what the function of the same name does, but suspends the task instead of a
// fiber. A wait ends early by a stop (`stopped`), and by its context or its time, if it
// was given one; what need not wait succeeds even then. The objects that are named must
// live until the wait is over; a context is kept. Each is awaited once.
//
// To await one of these outside a task is an error of the compiler.
#pragma once

#include <vigil/cases.hpp>
#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/task_waits.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/fiber.hpp>
#include <vigil/group.hpp>
#include <vigil/latch.hpp>
#include <vigil/mutex.hpp>
#include <vigil/select.hpp>
#include <vigil/semaphore.hpp>
#include <vigil/shared_mutex.hpp>
#include <vigil/task.hpp>
#include <vigil/wait_group.hpp>

#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace VIGIL_PUBLIC {
namespace co {

// --- time

// Suspends the task for at least d; one of zero or less does not wait, but lets a stop
// end the task. Throws what vigil::sleep_for throws. Thread safety: any task. Lifetime:
// the wait keeps the context. Shutdown: throws `stopped`. Cost: no stack.
template <detail::duration_argument D>
[[nodiscard]] auto sleep_for(const D& d) {
  return detail::sleep_wait(detail::within(d));
}

// Suspends the task until t, of any clock; does not wait if t has passed. Throws what
// co::sleep_for throws. Thread safety: any task. Lifetime: it refers to nothing.
// Shutdown: throws `stopped`. Cost: no stack.
template <detail::time_point_like Time>
[[nodiscard]] auto sleep_until(const Time& t) {
  return detail::sleep_wait(detail::until(t));
}

template <detail::duration_argument D>
[[nodiscard]] auto sleep_for(const D& d, const context& ctx) {
  return detail::sleep_wait(detail::within(d, ctx));
}

// Lets the other ready tasks and fibers go first. Throws `stopped`. Thread safety: any
// task. Lifetime: it refers to nothing. Shutdown: throws `stopped`. Cost: one turn of the
// runner.
[[nodiscard]] inline auto yield() noexcept {
  return detail::yield_wait{};
}

// Tells whether the task has been asked to stop. `co_await co::stop_requested()` does not
// wait. Throws nothing. Thread safety: any task. Lifetime: it refers to nothing.
// Shutdown: true once waits throw `stopped`. Cost: no wait.
[[nodiscard]] inline auto stop_requested() noexcept {
  return detail::ask_stop{};
}

// --- channels

// Waits for a value, as receiver::recv does: std::nullopt, or false for channel<void>,
// once the channel is closed and drained. Throws `stopped`, and `cancelled` with a
// context. Thread safety: that of the channel. Lifetime: the wait keeps the channel.
// Shutdown: returns if it need not wait; otherwise throws `stopped`. Cost: no stack.
template <detail::receives C>
[[nodiscard]] auto recv(const C& from) {
  using T = detail::element_of<C>;
  return detail::recv_wait<T, false>(from, detail::no_limit);
}

template <detail::receives C>
[[nodiscard]] auto recv(const C& from, const context& ctx) {
  using T = detail::element_of<C>;
  return detail::recv_wait<T, false>(from, detail::cancelled_by(ctx));
}

// Waits for a value as co::recv does, but no longer than the timeout; returns a
// recv_result<T>. Throws what co::recv throws, and std::bad_alloc. Thread safety: that of
// the channel. Lifetime: the wait keeps the channel. Shutdown: returns if it need not
// wait; otherwise throws `stopped`. Cost: no stack.
template <detail::receives C, detail::duration_argument D>
[[nodiscard]] auto recv_for(const C& from, const D& timeout) {
  using T = detail::element_of<C>;
  return detail::recv_wait<T, true>(from, detail::within(timeout));
}

// Sends as sender::send does. An rvalue is moved from only if it is sent; an lvalue is
// copied, and any other value converted, at once. Throws channel_closed, and what
// co::recv throws. Thread safety: that of the channel. Lifetime: the wait keeps the
// channel; an rvalue outlives it. Shutdown: returns if it need not wait; otherwise throws
// `stopped`. Cost: no stack.
template <detail::sends C, detail::is_value U>
[[nodiscard]] auto send(const C& to, U&& value) {
  return detail::send_by_task<false>(to, std::forward<U>(value), detail::no_limit);
}

template <detail::sends C, detail::is_value U>
[[nodiscard]] auto send(const C& to, U&& value, const context& ctx) {
  return detail::send_by_task<false>(to, std::forward<U>(value), detail::cancelled_by(ctx));
}

// Sends as co::send does, but waits no longer than the timeout; returns a send_result.
// Throws what co::recv_for throws, and what a copy of the value throws. Thread safety:
// that of the channel. Lifetime: that of co::send. Shutdown: returns if it need not wait;
// otherwise throws `stopped`. Cost: no stack.
template <detail::sends C, detail::is_value U, detail::duration_argument D>
[[nodiscard]] auto send_for(const C& to, U&& value, const D& timeout) {
  return detail::send_by_task<true>(to, std::forward<U>(value), detail::within(timeout));
}

// The same with a value that is made here: T(args...), or T{args...} for an aggregate. So
// it is no temporary of the co_await expression, which g++ 12 may destroy twice (box in
// docs/guide/coroutines.md). If the wait fails, the value is lost.
template <detail::sends C, class... Args>
[[nodiscard]] auto send(const C& to, std::in_place_t, Args&&... args) {
  return detail::send_made_by_task<false>(to, detail::no_limit, std::forward<Args>(args)...);
}

template <detail::sends C, class... Args>
[[nodiscard]] auto send(const C& to, const context& ctx, std::in_place_t, Args&&... args) {
  return detail::send_made_by_task<false>(
      to, detail::cancelled_by(ctx), std::forward<Args>(args)...);
}

template <detail::sends C, detail::duration_argument D, class... Args>
[[nodiscard]] auto send_for(const C& to, const D& timeout, std::in_place_t, Args&&... args) {
  return detail::send_made_by_task<true>(to, detail::within(timeout), std::forward<Args>(args)...);
}

// --- the ends of tasks

// Waits for the end of a task or a fiber, and returns its result or throws its exception;
// the handle is empty afterwards. Throws what join() of the handle throws; wrong_place in
// the task itself. Thread safety: that of the handle. Lifetime: the handle outlives the
// wait. Shutdown: returns if it need not wait; otherwise throws `stopped`. Cost: no
// stack.
template <class T>
[[nodiscard]] auto join(task_handle<T>& of) {
  return detail::join_task_wait<T, false>(of, detail::no_limit);
}

template <class T>
[[nodiscard]] auto join(task_handle<T>& of, const context& ctx) {
  return detail::join_task_wait<T, false>(of, detail::cancelled_by(ctx));
}

// Waits for the end of a task, but no longer than the timeout; returns whether the task
// has ended, and leaves its result in the handle. Throws what join_for() throws. Thread
// safety: that of the handle. Lifetime: the handle outlives the wait. Shutdown: returns
// if it need not wait; otherwise throws `stopped`. Cost: no stack.
template <class T, detail::duration_argument D>
[[nodiscard]] auto join_for(task_handle<T>& of, const D& timeout) {
  return detail::join_task_wait<T, true>(of, detail::within(timeout));
}

template <class R>
[[nodiscard]] auto join(fiber<R>& of) {
  if constexpr (std::is_void_v<R>) {
    return detail::wait_for_event(on_join(of));
  } else {
    return detail::wait_for_value<R>([&of](auto f) { return on_join(of, f); });
  }
}

// --- the ends of fibers and tasks of any number: each argument is a handle or a range of
// handles, which are looked at once it is awaited

// Waits until one has ended and returns its index, as vigil::wait_any does. Throws what
// vigil::wait_any throws. Thread safety: that of the handles. Lifetime: the handles
// outlive the wait. Shutdown: returns if it need not wait; otherwise throws `stopped`.
// Cost: no stack.
template <detail::handles... Handles>
[[nodiscard]] auto wait_any(Handles&... all) {
  return detail::any_end_wait<false, Handles...>(detail::no_limit, all...);
}

template <detail::handles... Handles>
[[nodiscard]] auto wait_any(const context& ctx, Handles&... all) {
  return detail::any_end_wait<false, Handles...>(detail::cancelled_by(ctx), all...);
}

// Waits as co::wait_any does, but no longer than the timeout; nullopt if it passes first.
// Throws what vigil::wait_any_for throws. Thread safety: that of the handles. Lifetime:
// the handles outlive the wait. Shutdown: returns if it need not wait; otherwise throws
// `stopped`. Cost: no stack.
template <detail::duration_argument D, detail::handles... Handles>
[[nodiscard]] auto wait_any_for(const D& timeout, Handles&... all) {
  return detail::any_end_wait<true, Handles...>(detail::within(timeout), all...);
}

// Waits until all have ended, as vigil::wait_all does. Throws what vigil::wait_all
// throws. Thread safety: that of the handles. Lifetime: the handles outlive the wait.
// Shutdown: returns if it need not wait; otherwise throws `stopped`. Cost: no stack.
template <detail::handles... Handles>
[[nodiscard]] auto wait_all(Handles&... all) {
  return detail::all_ends_wait<false, Handles...>(detail::no_limit, all...);
}

template <detail::handles... Handles>
[[nodiscard]] auto wait_all(const context& ctx, Handles&... all) {
  return detail::all_ends_wait<false, Handles...>(detail::cancelled_by(ctx), all...);
}

// Waits as co::wait_all does, but no longer than the timeout; false if it passes first.
// Throws what vigil::wait_all_for throws. Thread safety: that of the handles. Lifetime:
// the handles outlive the wait. Shutdown: returns if it need not wait; otherwise throws
// `stopped`. Cost: no stack.
template <detail::duration_argument D, detail::handles... Handles>
[[nodiscard]] auto wait_all_for(const D& timeout, Handles&... all) {
  return detail::all_ends_wait<true, Handles...>(detail::within(timeout), all...);
}

// --- locks and permits

// Waits for the lock, and returns a std::unique_lock that owns the lock. Throws
// `stopped`, and `cancelled` with a context. Thread safety: that of the mutex. Lifetime:
// the mutex outlives the wait. Shutdown: ends the wait by `stopped`, unlike
// mutex::lock(). Cost: no stack.
[[nodiscard]] inline auto lock(mutex& m) {
  return detail::wait_for_value<std::unique_lock<mutex>>([&m](auto f) { return on_lock(m, f); });
}

[[nodiscard]] inline auto lock(mutex& m, const context& ctx) {
  return detail::wait_for_value<std::unique_lock<mutex>>([&m](auto f) { return on_lock(m, f); },
                                                         detail::cancelled_by(ctx));
}

[[nodiscard]] inline auto lock(shared_mutex& m) {
  return detail::wait_for_value<std::unique_lock<shared_mutex>>(
      [&m](auto f) { return on_lock(m, f); });
}

// Waits for a shared lock, and returns a std::shared_lock that owns the lock. Throws
// `stopped`. Thread safety: that of the mutex. Lifetime: the mutex outlives the wait.
// Shutdown: that of co::lock. Cost: no stack.
[[nodiscard]] inline auto lock_shared(shared_mutex& m) {
  return detail::wait_for_value<std::shared_lock<shared_mutex>>(
      [&m](auto f) { return on_lock_shared(m, f); });
}

// Waits for permits, and returns a scoped_permit that owns n permits. Throws
// std::invalid_argument for a negative n, `stopped`, and `cancelled` with a context.
// Thread safety: that of the semaphore. Lifetime: the semaphore outlives the wait.
// Shutdown: returns if it need not wait; otherwise throws `stopped`. Cost: no stack.
[[nodiscard]] inline auto acquire(semaphore& s, std::int64_t n = 1) {
  return detail::wait_for_value<scoped_permit>([&s, n](auto f) { return on_acquire(s, n, f); });
}

[[nodiscard]] inline auto acquire(semaphore& s, std::int64_t n, const context& ctx) {
  return detail::wait_for_value<scoped_permit>([&s, n](auto f) { return on_acquire(s, n, f); },
                                               detail::cancelled_by(ctx));
}

// Waits until the count is zero, or all fibers of the group have ended; for a group_of it
// returns the results. Throws what wait() of the object throws. Thread safety: that of
// the object. Lifetime: the object outlives the wait. Shutdown: returns if it need not
// wait; otherwise throws `stopped`. Cost: no stack.
[[nodiscard]] inline auto wait(wait_group& g) {
  return detail::wait_for_event(on_wait(g));
}

[[nodiscard]] inline auto wait(latch& l) {
  return detail::wait_for_event(on_wait(l));
}

[[nodiscard]] inline auto wait(group& g) {
  return detail::wait_for_event(on_wait(g));
}

template <class T>
[[nodiscard]] auto wait(group_of<T>& g) {
  return detail::wait_for_value<std::vector<T>>([&g](auto f) { return on_wait(g, f); });
}

// Waits for the next result of the group, and returns it, or nullopt if none is left.
// Throws what group_of::next() throws. Thread safety: that of the group. Lifetime: the
// group outlives the wait. Shutdown: returns if it need not wait; otherwise throws
// `stopped`. Cost: no stack.
template <class T>
[[nodiscard]] auto next(group_of<T>& g) {
  return detail::wait_for_value<std::optional<T>>([&g](auto f) { return on_next(g, f); });
}

// Waits for the end of the context. Throws std::invalid_argument for a nil context, and
// `stopped`. Thread safety: that of the context. Lifetime: the wait keeps the context.
// Shutdown: as for on_done. Cost: no stack.
[[nodiscard]] inline auto done(const context& ctx) {
  return detail::wait_for_event(on_done(ctx));
}

// --- select

// Takes one case, calls its function, and returns its index. Throws what vigil::select
// throws. Thread safety: that of the cases. Lifetime: the wait owns the cases; their
// objects outlive it. Shutdown: takes a case that is ready, and otherwise throws
// `stopped`. Cost: no stack.
template <class... Cases>
[[nodiscard]] auto select(Cases... cases) {
  return detail::select_wait<Cases...>(detail::choice::fair, std::move(cases)...);
}

// Takes the first of the cases that are ready; otherwise as co::select. Throws what
// vigil::select throws. Thread safety: that of the cases. Lifetime: that of co::select.
// Shutdown: takes a case that is ready, and otherwise throws `stopped`. Cost: no stack.
template <class... Cases>
[[nodiscard]] auto select_ordered(Cases... cases) {
  return detail::select_wait<Cases...>(detail::choice::ordered, std::move(cases)...);
}

}  // namespace co

// The case of a task's end, for select() and co::select(); otherwise as that of a fiber.
// Throws as that of a fiber. Thread safety: that of the handle. Lifetime: the handle
// outlives the select. Shutdown: as for a fiber. Cost: no allocation.
template <class T, class F = detail::nothing>
[[nodiscard]] auto on_join(task_handle<T>& of, F f = {}) {
  return detail::task_join_case<T, F>(of, std::move(f));
}

}  // namespace VIGIL_PUBLIC
