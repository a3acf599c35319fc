// Cases of a select for what is not a channel: the end of a fiber or a group, a result, a
// lock, permits, a count that is zero. And wait_any, wait_all, for ends alone.
//
//   vigil::fiber<page> fast = vigil::spawn(fetch, mirror);
//   vigil::select(
//       vigil::on_join(fast, [&](page p) { show(p); }),
//       vigil::on_lock(cache_lock, [&](std::unique_lock<vigil::mutex> own) { ... }),
//       vigil::on_timeout(1s));
//
// A case does what the waiting call of its object does: it is taken when that call would
// return, and waits its turn in the same queue. If another case is taken, it has changed
// nothing. The object must outlive the select, or the case_list. A stop ends the wait,
// even where the plain lock() goes on. The function may be left out.
//
// Thread safety: that of the objects.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/wait_cases.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/fiber.hpp>
#include <vigil/group.hpp>
#include <vigil/latch.hpp>
#include <vigil/mutex.hpp>
#include <vigil/select.hpp>
#include <vigil/semaphore.hpp>
#include <vigil/shared_mutex.hpp>
#include <vigil/wait_group.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

namespace VIGIL_PUBLIC {

// Taken when the fiber has ended; h is then empty, as after join(). f takes the fiber's
// result, or nothing. If an exception has ended the fiber, select() throws it, or
// `cancelled`, as join() does. If another case is taken, h stays joinable. Thread safety:
// that of the handle. Lifetime: h outlives the select. Shutdown: taken if the fiber has
// ended; otherwise `stopped`. Cost: no allocation; that of join().
//
// Throws wrong_place if h is empty or the calling fiber's own. In a case_list the handle
// is looked at by each select; one that has been emptied since is never ready, until it
// is given another fiber. select() throws wrong_place if it has to wait while the handle
// is being joined already, be it by another of its cases.
template <class R, class F = detail::nothing>
[[nodiscard]] auto on_join(fiber<R>& h, F f = {}) {
  return detail::join_case<R, F>(h, std::move(f));
}

// Taken with the lock. f takes a std::unique_lock, which owns it, or nothing: then the
// lock stays with the caller of select(), as after lock(), unless f throws. (An f that
// takes nothing must not both unlock and throw.) Throws what f throws, from select().
// Thread safety: that of the lock. Lifetime: the lock outlives the select. Shutdown:
// taken if it is free; otherwise `stopped`, unlike lock().
//
// Cost: an unlock hands the lock to a select that is first in the queue, and nobody else
// has it until that one runs; for a mutex that is busy all the time lock() costs less.
// Locks and unlocks do not wait for one another as operations on channels do: a select
// over several locks looks at each at an instant of its own.
template <class F = detail::nothing>
[[nodiscard]] auto on_lock(mutex& m, F f = {}) {
  return detail::lock_case<std::unique_lock, mutex, F>(detail::mutex_case_table, m, std::move(f));
}

template <class F = detail::nothing>
[[nodiscard]] auto on_lock(shared_mutex& m, F f = {}) {
  return detail::lock_case<std::unique_lock, shared_mutex, F>(
      detail::write_case_table, m, std::move(f));
}

// Taken with a shared lock: as on_lock, for lock_shared() and std::shared_lock. Throws as
// on_lock. Thread safety: as on_lock. Lifetime: as on_lock. Shutdown: as on_lock. Cost:
// as on_lock.
template <class F = detail::nothing>
[[nodiscard]] auto on_lock_shared(shared_mutex& m, F f = {}) {
  return detail::lock_case<std::shared_lock, shared_mutex, F>(
      detail::read_case_table, m, std::move(f));
}

// Taken with n permits. f takes a scoped_permit, which owns them, or nothing: then they
// stay with the caller of select(), as after acquire(n), unless f throws. Zero permits
// are granted at once. Throws std::invalid_argument for a negative n. Thread safety: that
// of semaphore. Lifetime: the semaphore outlives the select. Shutdown: taken if there are
// permits; otherwise `stopped`. Cost: that of acquire().
template <class F = detail::nothing>
[[nodiscard]] auto on_acquire(semaphore& s, std::int64_t n, F f = {}) {
  return detail::permit_case<F>(s, n, std::move(f));
}

template <class F = detail::nothing>
  requires(!std::is_convertible_v<F, std::int64_t>)
[[nodiscard]] auto on_acquire(semaphore& s, F f = {}) {
  return detail::permit_case<F>(s, 1, std::move(f));
}

// Taken once the count of a wait_group or a latch is, or during the wait was, zero.
// Throws what f throws, from select(). Thread safety: that of the object. Lifetime: it
// outlives the select. Shutdown: taken if it would not wait; otherwise `stopped`. Cost:
// that of wait().
template <class F = detail::nothing>
[[nodiscard]] auto on_wait(wait_group& g, F f = {}) {
  return detail::event_case<F>(
      detail::wait_group_case_table, &detail::core_access::of(g), std::move(f));
}

template <class F = detail::nothing>
[[nodiscard]] auto on_wait(latch& l, F f = {}) {
  return detail::event_case<F>(detail::latch_case_table, &detail::core_access::of(l), std::move(f));
}

// Taken when all fibers of the group have ended; what follows is as in wait(): nothing
// starts in the group any more, and select() throws its first error.
template <class F = detail::nothing>
[[nodiscard]] auto on_wait(group& g, F f = {}) {
  return detail::group_case<F>(g, std::move(f));
}

// The same; f takes the std::vector<T> that wait() returns, or nothing.
template <class T, class F = detail::nothing>
[[nodiscard]] auto on_wait(group_of<T>& g, F f = {}) {
  return detail::results_case<T, F>(g, std::move(f));
}

// Taken with the next result of the group; f takes what next() returns, a
// std::optional<T> that is empty when all have ended and no result is left, or nothing.
// Once the results have come to their end the case is ready all the time. Throws what
// next() throws, out of select(). Thread safety: that of group_of. Lifetime: the group
// outlives the select. Shutdown: taken if a result is there; otherwise `stopped`. Cost:
// that of next().
template <class T, class F = detail::nothing>
[[nodiscard]] auto on_next(group_of<T>& g, F f = {}) {
  return detail::next_case<T, F>(g, std::move(f));
}

// --- Waits for the ends of fibers and tasks of any number: each argument is an lvalue, a
// handle, fiber<R>& or task_handle<T>&, or a range of handles, such as
// std::vector<fiber<R>>&. Empty handles are not waited for. The handles keep their
// results: a join() afterwards does not wait. In a task, vigil/co.hpp has those without
// _until to co_await.
//
// All throw wrong_place before they wait if the caller's own fiber or task is among them.
// If they have to wait, they throw wrong_place if another joins a handle that they wait
// for, or if wait_any has a handle twice; `stopped`; and with a context `cancelled` when
// ctx is done.
//
// Cost of each call: room for each handle, and for wait_any a look at all of them. A
// group_of<T> hands out many results one by one for less.

// Waits until one of the fibers or tasks has ended, and returns its index, counted
// through all arguments, the empty handles as well. If several have, each has the same
// chance. Throws std::invalid_argument if there is none to wait for, `stopped`,
// wrong_place, std::bad_alloc; with a context `cancelled`. Thread safety: each handle is
// used by nobody else meanwhile. Lifetime: handles outlive the call. Shutdown: returns if
// one has ended; otherwise `stopped`. Cost: a look at each handle, and room for it.
template <detail::handles... Handles>
std::size_t wait_any(Handles&... all) {
  return *detail::wait_any_within(detail::no_limit, all...);
}

template <detail::handles... Handles>
std::size_t wait_any(const context& ctx, Handles&... all) {
  return *detail::wait_any_within(detail::cancelled_by(ctx), all...);
}

// wait_any with a timeout: returns nullopt if it passes first. A zero or negative timeout
// only looks. Throws what wait_any throws. Thread safety: that of wait_any. Lifetime:
// that of wait_any. Shutdown: that of wait_any. Cost: that of wait_any, and of a timer if
// it waits.
template <detail::duration_like D, detail::handles... Handles>
[[nodiscard]] std::optional<std::size_t> wait_any_for(const D& timeout, Handles&... all) {
  return detail::wait_any_within(detail::within(timeout), all...);
}

void wait_any_for(detail::write_a_duration_such_as_5ms, ...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

// wait_any with a deadline of any clock: returns nullopt if it passes first. Throws what
// wait_any throws. Thread safety: that of wait_any. Lifetime: that of wait_any. Shutdown:
// that of wait_any. Cost: that of wait_any_for.
template <detail::time_point_like Time, detail::handles... Handles>
[[nodiscard]] std::optional<std::size_t> wait_any_until(const Time& t, Handles&... all) {
  return detail::wait_any_within(detail::until(t), all...);
}

// Waits until all of the fibers and tasks have ended; returns at once if there are none.
// Throws what wait_any throws, but nothing if there are none. Thread safety: that of
// wait_any. Lifetime: that of wait_any. Shutdown: returns if all have ended; otherwise
// `stopped`. Cost: one wait after another.
template <detail::handles... Handles>
void wait_all(Handles&... all) {
  detail::wait_all_within(detail::no_limit, all...);
}

template <detail::handles... Handles>
void wait_all(const context& ctx, Handles&... all) {
  detail::wait_all_within(detail::cancelled_by(ctx), all...);
}

// wait_all with a timeout: returns false if it passes first. A zero or negative timeout
// only looks. Throws what wait_all throws. Thread safety: that of wait_any. Lifetime:
// that of wait_any. Shutdown: that of wait_all. Cost: that of wait_all.
template <detail::duration_like D, detail::handles... Handles>
[[nodiscard]] bool wait_all_for(const D& timeout, Handles&... all) {
  return detail::wait_all_within(detail::within(timeout), all...);
}

void wait_all_for(detail::write_a_duration_such_as_5ms, ...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

// wait_all with a deadline of any clock: returns false if it passes first. Throws what
// wait_all throws. Thread safety: that of wait_any. Lifetime: that of wait_any. Shutdown:
// that of wait_all. Cost: that of wait_all.
template <detail::time_point_like Time, detail::handles... Handles>
[[nodiscard]] bool wait_all_until(const Time& t, Handles&... all) {
  return detail::wait_all_within(detail::until(t), all...);
}

}  // namespace VIGIL_PUBLIC
