// post and defer: functions that run soon, but not now.
//
//   vigil::post([] { ... });   // in a later round
//   vigil::defer([] { ... });  // when this callback, or this stretch of the fiber, is over
//
// Both run their function once, on a fiber of the runtime, like the callback of a due
// timer: it may wait without delaying others. Endless chains of posts, defers and yields
// starve nothing.
//
// post: the functions that are posted now form a round. They start in the order of the
// calls, among the due callbacks of timers; with several workers, two may run at a time.
// Functions that they post belong to a later round, which begins when all of this one
// have started and the worker has looked at its other fibers and timers. Behaviour:
// Node's setImmediate.
//
// defer: the function starts when the calling callback has returned, or when the calling
// fiber parks, yields or ends, whichever comes first; in the order of the calls, and
// before functions that were posted or came due meanwhile. One deferred by a deferred
// function runs in a later round. Behaviour: process.nextTick without its starvation.
// (Go's defer is a destructor here: std::lock_guard, scoped_close, scoped_permit.)
//
// A function that has not started counts among the timers in stats(), and keeps a program
// with exit_when::all_done alive. One that has not started when the run ends never does;
// its captures die on the main fiber. Exceptions go to options::on_unhandled.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/site.hpp>

#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {
class scheduler;
class timer_record;

// These return the function's record and give the caller a handle, or return nullptr.
VIGIL_API timer_record* post(callback f, const site& from, bool with_handle = false);
// The same for the runtime of that scheduler.
VIGIL_API timer_record* post_to(scheduler& sched,
                                callback f,
                                const site& from,
                                bool with_handle = false);
VIGIL_API timer_record* defer(callback f, const site& from, bool with_handle = false);
}  // namespace detail

// stoppable_t: the type of stoppable. post(f, stoppable) and defer(f, stoppable), in
// vigil/timer.hpp, return a timer; its stop() takes f back unless f has begun. Throws
// nothing. Thread safety: a constant. Behaviour: Node's clearImmediate.
struct stoppable_t {
  explicit stoppable_t() = default;
};

// stoppable: the argument of post() and defer() with which they return a timer.
inline constexpr stoppable_t stoppable{};

// Runs f in a later round, on a fiber of the current runtime, after those that were
// posted before it. Posts are never merged. Throws std::invalid_argument for an empty
// function, wrong_place on a thread without a runtime (use runtime::post there),
// std::bad_alloc. Thread safety: any fiber; with several workers two functions may run at
// a time. Lifetime: captures die when f has returned. Shutdown: an f that has not started
// when waits begin to throw `stopped` never does; its captures die on the main fiber.
// Cost: no allocation for captures of up to 40 bytes. Behaviour: Node's setImmediate.
template <class F>
  requires std::is_invocable_v<std::decay_t<F>&>
void post(F&& f, const site& from = site::current()) {
  detail::post(detail::callback(std::forward<F>(f)), from);
}

template <class write = detail::f_is_called_without_arguments>
void post(...) VIGIL_REFUSED(VIGIL_WANTS_PLAIN_FUNCTION);

// Runs f when the current callback is over, or when the calling fiber next gives up its
// worker. Throws what post() throws, and wrong_place outside a fiber. Thread safety: any
// fiber. Lifetime: as for post. Shutdown: as for post; so main's last one never starts if
// main does not wait again, unless a grace or exit_when::all_done gives it time. Cost:
// that of post. Behaviour: Node's process.nextTick, without its starvation; Go's defer is
// a destructor here.
template <class F>
  requires std::is_invocable_v<std::decay_t<F>&>
void defer(F&& f, const site& from = site::current()) {
  detail::defer(detail::callback(std::forward<F>(f)), from);
}

template <class write = detail::f_is_called_without_arguments>
void defer(...) VIGIL_REFUSED(VIGIL_WANTS_PLAIN_FUNCTION);

}  // namespace VIGIL_PUBLIC
