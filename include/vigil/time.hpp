// Sleeping and timer channels: sleep_for, sleep_until, after, tick.
//
// All waits are on the monotonic clock: steps of the wall clock change nothing. A sleep
// never ends early, not by a nanosecond.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/mistakes.hpp>

#include <chrono>
#include <cstdint>

namespace VIGIL_PUBLIC {

namespace detail {
// Waits on a fiber: throws stopped, wrong_place.
VIGIL_API void sleep(const wait_limit& limit);
VIGIL_API channel_core* make_timer(const char* call, std::int64_t delay);
VIGIL_API channel_core* make_timer_at(const char* call, std::int64_t deadline);
VIGIL_API channel_core* make_ticker(const char* call, std::int64_t first, std::int64_t period);
}  // namespace detail

// Parks the calling fiber for at least d. If d is zero or negative it returns at once and
// does not give up the worker. A duration beyond the clock's range sleeps until the
// shutdown. With a context it throws `cancelled` when ctx is done, unless d is zero or
// negative. Throws `stopped` if the fiber is asked to stop before or during the sleep,
// even if d is zero; wrong_place outside a fiber (on a plain thread use
// std::this_thread::sleep_for); std::invalid_argument for NaN; std::bad_alloc if the
// timer cannot be armed. Behaviour: Go's time.Sleep, which a context does not end.
//
// Thread safety: any fiber; it concerns the caller alone. Shutdown: throws `stopped`
// after options::grace; under background(), `cancelled` at once. Cost: no allocation
// after the fiber's first timed wait; a lone sleep makes one kernel wait.
template <detail::duration_like D>
void sleep_for(const D& d) {
  detail::sleep(detail::within(d));
}

// Parks the calling fiber until t; returns at once if t has passed. Time points of
// steady_clock and system_clock are converted once. With a context it throws `cancelled`
// when ctx is done, unless t has passed. Throws what sleep_for throws. Thread safety: any
// fiber. Shutdown: as sleep_for. Cost: as sleep_for, and the conversion.
template <detail::time_point_like Time>
void sleep_until(const Time& t) {
  detail::sleep(detail::until(t));
}

// The same two with a context.
template <detail::duration_like D>
void sleep_for(const D& d, const context& ctx) {
  detail::sleep(detail::within(d, ctx));
}

template <detail::time_point_like Time>
void sleep_until(const Time& t, const context& ctx) {
  detail::sleep(detail::until(t, ctx));
}

template <class write = detail::write_a_duration_such_as_5ms>
void sleep_for(...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

// timer_receiver: the channel of a timer. Each value is the deadline itself, however late
// it is received. Throws and waits as receiver does. Thread safety: that of receiver.
// Lifetime: it keeps its timer. Shutdown: the end of the runtime object closes it, and
// between two runs no value comes. Cost: a receive reads the clock, and arms the timer
// only if it waits.
using timer_receiver = receiver<clock::time_point>;

// Returns a channel that sends its deadline once, d from now; at once if d is zero or
// negative. Throws wrong_place on a thread without a runtime (use recv_for there, or make
// the timer on a fiber), std::invalid_argument for NaN, and std::bad_alloc. Thread
// safety: any fiber makes one, and any fiber or thread may receive. Lifetime: it need not
// be drained or stopped; dropping the receiver frees it. Shutdown: that of
// timer_receiver. Cost: one allocation; it is in the heap only while a receiver waits.
// Behaviour: Go's time.After, since 1.23.
template <detail::duration_like D>
[[nodiscard]] timer_receiver after(const D& d) {
  return timer_receiver(detail::channel_handle(detail::make_timer("after", detail::to_nanos(d))));
}

template <class write = detail::write_a_duration_such_as_5ms>
void after(...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

// Returns a channel of ticks; each value is the instant at which the tick was due (see
// ticker). With a zero or negative period it is a nil channel, which is never ready, as
// in Go. Throws what after throws. Thread safety: that of after. Lifetime: dropping the
// receiver ends it. Shutdown: that of timer_receiver. Cost: that of after.
template <detail::duration_like D>
[[nodiscard]] timer_receiver tick(const D& period) {
  const std::int64_t length = detail::to_nanos(period);
  if (length <= 0) return {};
  return timer_receiver(detail::channel_handle(detail::make_ticker("tick", length, length)));
}

template <class write = detail::write_a_duration_such_as_5ms>
void tick(...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

}  // namespace VIGIL_PUBLIC
