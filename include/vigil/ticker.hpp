// Repeating timers: ticker sends ticks on a channel, every() calls a function.
#pragma once

#include <vigil/detail/mistakes.hpp>
#include <vigil/timer.hpp>

namespace VIGIL_PUBLIC {

namespace detail {
VIGIL_API bool reset_ticker(channel_core* ticker, std::int64_t first, std::int64_t period);
VIGIL_API std::uint64_t missed(const channel_core* ticker) noexcept;
}  // namespace detail

class aligned_ticker;  // clocks.hpp

// ticker: sends a tick on its channel every `period`, the first one period from now. Each
// value is the instant at which the tick was due. The phase is kept: ticks are due at
// start + n * period. A late receiver gets the first tick that it missed, then the next
// one to come; the ticks in between are dropped and counted.
//
// A ticker is a handle, and copies name the same ticker. Lifetime: it ends with the last
// handle and the last receiver of its channel. A handle may outlive the runtime: then
// stop() is false, and reset() throws runtime_gone. Shutdown: the end of the runtime
// object closes the channel. Cost: one allocation; it is in the heap only while a
// receiver waits on it.
//
// Thread safety: that of timer. Behaviour: Go's Ticker, since 1.23.
class ticker {
 public:
  // Ticks whenever the wall clock reads a multiple of the period, and follows its steps.
  // Needs <vigil/clocks.hpp>.
  template <detail::duration_argument D>
  static aligned_ticker aligned(const D& period);

  // Makes an empty handle: stop() is false, reset() throws std::logic_error.
  ticker() noexcept = default;

  // Throws std::invalid_argument for a period of zero or less, wrong_place on a thread
  // without a runtime, and std::bad_alloc.
  template <detail::duration_argument D>
  explicit ticker(const D& period) : ticker(period, period) {}

  // The first tick comes after `first`; at once if that is zero or negative.
  template <detail::duration_argument D1, detail::duration_argument D2>
  ticker(const D1& first, const D2& period)
      : channel_(detail::channel_handle(
            detail::make_ticker("ticker", detail::to_nanos(first), detail::to_nanos(period)))) {}

  explicit operator bool() const noexcept { return static_cast<bool>(channel_); }

  timer_receiver channel() const noexcept { return channel_; }

  // Stops the ticks; a due tick that was not received is gone. Returns whether it was
  // ticking. The channel is not closed; reset() starts the ticker again.
  bool stop() const noexcept { return channel_.core() != nullptr && detail::stop(channel_.core()); }

  // Ticks every `period` from now on, the first time after one period (or after `first`);
  // an unreceived tick is gone. Returns whether it was ticking. Throws what the
  // constructor throws, and runtime_gone.
  template <detail::duration_argument D>
  bool reset(const D& period) const {
    return reset(period, period);
  }

  template <detail::duration_argument D1, detail::duration_argument D2>
  bool reset(const D1& first, const D2& period) const {
    return detail::reset_ticker(channel_.core(), detail::to_nanos(first), detail::to_nanos(period));
  }

  // When the next tick is due, or was due if it has not been received yet;
  // time_point::max() if the ticker is stopped.
  clock::time_point deadline() const noexcept {
    return clock::time_point(clock::duration(
        channel_.core() == nullptr ? INT64_MAX : detail::deadline_of(channel_.core())));
  }

  // The number of ticks dropped so far, counted when the late one before them is
  // received.
  std::uint64_t missed() const noexcept {
    return channel_.core() == nullptr ? 0 : detail::missed(channel_.core());
  }

  // See timer::set_slack.
  template <detail::duration_argument D>
  void set_slack(const D& slack) const {
    const std::int64_t length = detail::to_nanos(slack);
    if (channel_.core() != nullptr) detail::set_slack(channel_.core(), length);
  }

 private:
  timer_receiver channel_;
};

// Argument of every(): counts the next run from the end of the last one. Its object is
// from_end. Throws nothing. Thread safety: a constant.
struct from_end_t {
  explicit from_end_t() = default;
};

// from_end: the argument of every() that counts from the end of the last run.
inline constexpr from_end_t from_end{};

// Runs f on a fiber every `period`, the first time one period from now, and never twice
// at once. The phase is kept: runs are due at start + n * period, however long f takes;
// the runs missed meanwhile collapse into one. Inside f, deadline() is the next run, and
// stop() and reset() work.
//
// Throws std::invalid_argument for a period of zero or less, otherwise what after_func
// throws. Thread safety: any fiber; runs of one timer never overlap, those of several
// may. Lifetime: without handles it goes on until the end of the run; captures as for
// after_func. Shutdown: a run in progress is unwound by its waits, and no other begins
// once waits throw `stopped`. Cost: each run costs what one of after_func does.
// Behaviour: Node's setInterval, with the phase of Go's ticker.
template <detail::duration_like D, class F>
  requires detail::timer_function<F, timer>
timer every(const D& period, F&& f, const site& from = site::current()) {
  const std::int64_t length = detail::to_nanos(period);  // before f is moved from
  return timer(
      detail::every(length, false, detail::timer_callback<timer>(std::forward<F>(f)), from));
}

// The same, but the next run is due one period after f has returned. Inside f nothing is
// pending: deadline() is time_point::max().
template <detail::duration_like D, class F>
  requires detail::timer_function<F, timer>
timer every(const D& period, F&& f, from_end_t, const site& from = site::current()) {
  const std::int64_t length = detail::to_nanos(period);  // before f is moved from
  return timer(
      detail::every(length, true, detail::timer_callback<timer>(std::forward<F>(f)), from));
}

void every(detail::write_a_duration_such_as_5ms, ...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

template <detail::duration_like D, class write = detail::f_is_called_without_arguments>
void every(const D&, ...) VIGIL_REFUSED(VIGIL_WANTS_PLAIN_FUNCTION);

}  // namespace VIGIL_PUBLIC
