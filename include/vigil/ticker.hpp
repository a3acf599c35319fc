// Repeating: ticker, which hands ticks to a channel, and every(), which calls.
#pragma once

#include <vigil/timer.hpp>

namespace vigil::inline VIGIL_ABI {

namespace detail {
VIGIL_API bool reset_ticker(channel_core* ticker, std::int64_t first, std::int64_t period);
VIGIL_API std::uint64_t missed(const channel_core* ticker) noexcept;
}  // namespace detail

// Ticks every `period` on its channel, the first time one period from now. Each
// tick hands over the instant at which it was due. The phase is kept: ticks are
// due at start + n * period; a receiver that is late gets the first it missed,
// then the next one to come, and the others are dropped and counted.
//
// A handle: copies name the same ticker, which ends when the last one and the
// last receiver of its channel are gone. It is in the heap only while somebody
// waits on it. Thread safety: as timer. Behaviour: Go's Ticker, since 1.23.
class ticker {
 public:
  // An empty handle: stop() is false, reset() throws std::logic_error.
  ticker() noexcept = default;

  // Throws std::invalid_argument for a period of zero or less, wrong_place on a
  // thread without a runtime, std::bad_alloc.
  template <detail::duration_like D>
  explicit ticker(const D& period) : ticker(period, period) {}

  // The first tick comes after `first`; zero or negative: at once.
  template <detail::duration_like D1, detail::duration_like D2>
  ticker(const D1& first, const D2& period)
      : channel_(detail::channel_handle(
            detail::make_ticker("ticker", detail::to_nanos(first), detail::to_nanos(period)))) {}

  explicit operator bool() const noexcept { return static_cast<bool>(channel_); }

  timer_receiver channel() const noexcept { return channel_; }

  // No more ticks; also one that was due and not received is gone. True if it
  // was ticking. The channel is not closed; reset() starts it again.
  bool stop() const noexcept { return channel_.core() != nullptr && detail::stop(channel_.core()); }

  // Ticks from now on every `period`, the first time one period (or `first`)
  // from now; an unreceived tick is gone. Returns whether it was ticking.
  // Throws as the constructor does, and runtime_gone.
  template <detail::duration_like D>
  bool reset(const D& period) const {
    return reset(period, period);
  }

  template <detail::duration_like D1, detail::duration_like D2>
  bool reset(const D1& first, const D2& period) const {
    return detail::reset_ticker(channel_.core(), detail::to_nanos(first), detail::to_nanos(period));
  }

  // When the next tick is due, or was, if nobody has received it yet;
  // time_point::max() if it is stopped.
  clock::time_point deadline() const noexcept {
    return clock::time_point(clock::duration(
        channel_.core() == nullptr ? INT64_MAX : detail::deadline_of(channel_.core())));
  }

  // Ticks dropped so far, because nobody had received the one before. Counted
  // when the late one is received.
  std::uint64_t missed() const noexcept {
    return channel_.core() == nullptr ? 0 : detail::missed(channel_.core());
  }

  // As for timer.
  template <detail::duration_like D>
  void set_slack(const D& slack) const {
    const std::int64_t length = detail::to_nanos(slack);
    if (channel_.core() != nullptr) detail::set_slack(channel_.core(), length);
  }

 private:
  timer_receiver channel_;
};

// every(period, f, from_end): the next run is counted from the end of the
// last one.
struct from_end_t {
  explicit from_end_t() = default;
};

inline constexpr from_end_t from_end{};

// Runs f on a fiber every `period`, the first time one period from now, never
// two runs at once. The phase is kept: runs are due at start + n * period,
// however long f takes; those missed meanwhile collapse into one. Inside f,
// deadline() is the next run, and stop() and reset() work.
//
// Throws std::invalid_argument for a period of zero or less and for an empty
// function, otherwise as after_func. Behaviour: Go's ticker, with a callback.
template <detail::duration_like D, class F>
  requires std::is_invocable_v<std::decay_t<F>&>
timer every(const D& period, F&& f, const site& from = site::current()) {
  const std::int64_t length = detail::to_nanos(period);  // before f is moved from
  return timer(detail::every(length, false, detail::callback(std::forward<F>(f)), from));
}

// The same, but the next run is due one period after f has returned. Inside f
// nothing is pending yet: deadline() is time_point::max().
template <detail::duration_like D, class F>
  requires std::is_invocable_v<std::decay_t<F>&>
timer every(const D& period, F&& f, from_end_t, const site& from = site::current()) {
  const std::int64_t length = detail::to_nanos(period);  // before f is moved from
  return timer(detail::every(length, true, detail::callback(std::forward<F>(f)), from));
}

}  // namespace vigil::inline VIGIL_ABI
