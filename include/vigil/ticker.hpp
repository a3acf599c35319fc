// Repeating work: every().
#pragma once

#include <vigil/timer.hpp>

namespace vigil {
inline namespace VIGIL_ABI {

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
timer every(const D& period, F&& f,
            const site& from = site::current()) {
  return timer(detail::every(
      detail::to_nanos(period), false, detail::callback(std::forward<F>(f)), from));
}

// The same, but the next run is due one period after f has returned. Inside f
// nothing is pending yet: deadline() is time_point::max().
template <detail::duration_like D, class F>
requires std::is_invocable_v<std::decay_t<F>&>
timer every(const D& period, F&& f, from_end_t,
            const site& from = site::current()) {
  return timer(detail::every(
      detail::to_nanos(period), true, detail::callback(std::forward<F>(f)), from));
}

}  // namespace VIGIL_ABI
}  // namespace vigil
