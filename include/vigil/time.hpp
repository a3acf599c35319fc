// Time: sleep_for, sleep_until, after, tick; and the clock.
//
// All waiting is on the monotonic clock: steps of the wall clock change
// nothing. A sleep never ends early, not by a nanosecond.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>

#include <chrono>
#include <cstdint>

namespace vigil::inline VIGIL_ABI {

namespace detail {
// Waits on a fiber: throws stopped, wrong_place.
VIGIL_API void sleep(const wait_limit& limit);
VIGIL_API channel_core* make_timer(const char* call, std::int64_t delay);
VIGIL_API channel_core* make_timer_at(const char* call, std::int64_t deadline);
VIGIL_API channel_core* make_ticker(const char* call, std::int64_t first, std::int64_t period);
}  // namespace detail

// Parks the calling fiber for at least d. Zero or negative: returns at once,
// without giving the worker away. Durations beyond the clock's range sleep
// for ever (until the shutdown). Throws `stopped` if the fiber is asked to
// stop before or during the sleep, however long it is, and wrong_place outside
// a fiber: on a plain thread use std::this_thread::sleep_for.
//
// Cost: no allocation after the fiber's first timed wait; a lone sleep makes
// one kernel wait.
template <detail::duration_like D>
void sleep_for(const D& d) {
  detail::sleep(detail::within(d));
}

// Parks the calling fiber until t is reached; a t that has passed returns at
// once. Time points of steady_clock and system_clock are converted once.
template <detail::time_point_like Time>
void sleep_until(const Time& t) {
  detail::sleep(detail::until(t));
}

// The same, at most until ctx is done: then they throw `cancelled`. A sleep of no
// length, and one to a time that has passed, returns even so.
template <detail::duration_like D>
void sleep_for(const D& d, const context& ctx) {
  detail::sleep(detail::within(d, ctx));
}

template <detail::time_point_like Time>
void sleep_until(const Time& t, const context& ctx) {
  detail::sleep(detail::until(t, ctx));
}

// The value that a timer's channel sends: the deadline itself, however late it is
// received.
using timer_receiver = receiver<clock::time_point>;

// A channel that hands over its deadline once, d from now; zero or negative: at
// once. Nobody has to drain it or stop it: dropping the receiver frees it, and
// it is in the heap only while somebody waits on it. Throws wrong_place on a
// thread without a runtime (bound a wait with recv_for there, or make the timer
// on a fiber), std::bad_alloc. Behaviour: Go's time.After, since 1.23.
template <detail::duration_like D>
[[nodiscard]] timer_receiver after(const D& d) {
  return timer_receiver(detail::channel_handle(detail::make_timer("after", detail::to_nanos(d))));
}

// A channel of ticks, each handing over the instant at which it was due; see
// ticker. Dropping the receiver ends it. Zero or negative: a nil channel, as in
// Go, which is never ready.
template <detail::duration_like D>
[[nodiscard]] timer_receiver tick(const D& period) {
  const std::int64_t length = detail::to_nanos(period);
  if (length <= 0) return {};
  return timer_receiver(detail::channel_handle(detail::make_ticker("tick", length, length)));
}

}  // namespace vigil::inline VIGIL_ABI
