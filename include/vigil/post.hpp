// post and defer: functions that run soon, but not now.
//
//   vigil::post([] { ... });   // in a later round
//   vigil::defer([] { ... });  // when this callback, or this stretch of the fiber, is over
//
// Both run their function once, on a fiber of the runtime, as the callback of a
// timer that is due: it may park, and holds up no other one then. Nobody waits
// for the clock, and nothing is starved: endless chains of posts, defers and
// yields leave due timers, ready fibers and one another their turns.
//
// post: the functions that are posted now form a round. They start in the order
// in which they were posted, among the timers' callbacks that are due; what they
// post themselves belongs to a later round, which begins when all of this one
// have started and the worker has looked at its other fibers and timers. On
// several workers two of them may run at the same time.
//
// defer: the function starts only when the calling callback has returned, or
// when the calling fiber parks, yields or ends, whichever comes first; then in
// the order of the calls, and before what was posted or came due meanwhile. What
// a deferred function defers itself comes in a later round, as if posted.
//
// A function that waits holds a program with exit_when::all_done, and is counted
// among the timers in stats(). One that has not started when the run ends never
// does; its captures die on the main fiber. So what the main fiber defers and does
// not wait after is sure to start only with exit_when::all_done: otherwise its end is
// the run's.
// An exception that leaves one goes to options::on_unhandled.
//
// Behaviour: Node's setImmediate, and process.nextTick without its starvation.
//
// This defer is not Go's, which runs a function when the caller returns: that is a
// destructor here. Ready-made are std::lock_guard for a mutex, scoped_close for a
// channel, scoped_permit for a semaphore and scoped_timer for a timer.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>

#include <type_traits>
#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {

namespace detail {
VIGIL_API void post(callback f, const site& from);
// In the runtime of that scheduler.
VIGIL_API void post_to(void* sched, callback f, const site& from);
VIGIL_API void defer(callback f, const site& from);
}  // namespace detail

// Runs f in a later round. From a plain thread: runtime::post; any number of
// them, none is merged with another. Throws std::invalid_argument for an empty
// function, wrong_place on a thread without a runtime, std::bad_alloc.
template <class F>
requires std::is_invocable_v<std::decay_t<F>&>
void post(F&& f, const site& from = site::current()) {
  detail::post(detail::callback(std::forward<F>(f)), from);
}

// Runs f when the present callback is over, or the calling fiber next gives its
// worker away; not at the end of the scope, as Go's `defer` (see above). Throws
// as post(), and wrong_place outside a fiber.
template <class F>
requires std::is_invocable_v<std::decay_t<F>&>
void defer(F&& f, const site& from = site::current()) {
  detail::defer(detail::callback(std::forward<F>(f)), from);
}

}  // namespace VIGIL_ABI
}  // namespace vigil
