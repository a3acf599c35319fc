// wait_limit: how long a call may wait, and which context ends it. Every call that
// waits hands one to its core function, and so has three forms in one line each.
//
//   bool wait_for(const D& timeout) { return detail::wait(core_, detail::within(timeout)); }
//
// Without <chrono>: duration.hpp and deadline.hpp say what counts as a time.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/deadline.hpp>
#include <vigil/detail/duration.hpp>

#include <cstdint>

namespace vigil::inline VIGIL_ABI {

class context;  // context.hpp

namespace detail {

class cancel_node;  // what a context makes others wait under

// nullptr: never done. Throws std::invalid_argument for a nil context.
VIGIL_API cancel_node* cancel_node_of(const context& ctx);

struct wait_limit {
  enum class timing : std::uint8_t { none, within, until };

  constexpr bool is_timed() const noexcept { return time != timing::none; }

  constexpr bool is_relative() const noexcept { return time == timing::within; }

  // The same context, and this deadline.
  constexpr wait_limit until(std::int64_t deadline) const noexcept {
    return {timing::until, deadline, cancelled_by};
  }

  // The deadline that it means at `now`, saturated; no_deadline without a time.
  constexpr std::int64_t as_deadline(std::int64_t now) const noexcept {
    return is_relative() ? saturating_add(now, nanoseconds) : nanoseconds;
  }

  // The same by the clock of the caller, which is read only if it has to be.
  std::int64_t as_deadline() const noexcept {
    return is_relative() ? as_deadline(now()) : nanoseconds;
  }

  // For several waits: a timeout counts from now on.
  wait_limit absolute() const noexcept { return is_relative() ? until(as_deadline()) : *this; }

  // Nothing is to be waited for: the time is over. It does not look at the node. It
  // reads the clock for a deadline: not under a spinlock that many contend for.
  bool is_over() const noexcept {
    if (is_relative()) return nanoseconds <= 0;
    return nanoseconds != no_deadline && nanoseconds <= now();
  }

  timing time = timing::none;
  std::int64_t nanoseconds = no_deadline;  // from now on (within), or of vigil::clock (until)
  cancel_node* cancelled_by = nullptr;     // a context's
};

// For calls that wait until what they wait for comes.
inline constexpr wait_limit no_limit{};

VIGIL_API void keep(cancel_node& node) noexcept;
VIGIL_API void let_go(cancel_node& node) noexcept;

// A limit does not keep its node. The context that it was made from is there when a call
// begins, and may go as soon as the caller has waited or has run a function of the
// user's. So each wait has a `caller` (src/sched/wait/caller.hpp), which keeps the node
// while it lives, and looks at the node afterwards; and a call that has several waits, or
// runs a function before one, keeps the node around all of them: by one caller, one
// kept_limit, or a context of its own.
class kept_limit {
 public:
  explicit kept_limit(const wait_limit& l) noexcept : limit(l) {
    if (limit.cancelled_by != nullptr) keep(*limit.cancelled_by);
  }

  ~kept_limit() {
    if (limit.cancelled_by != nullptr) let_go(*limit.cancelled_by);
  }

  kept_limit(const kept_limit&) = delete;
  kept_limit& operator=(const kept_limit&) = delete;

  const wait_limit limit;
};

// --- a limit, in nanoseconds or as users say it

constexpr wait_limit within(std::int64_t nanoseconds) noexcept {
  return {wait_limit::timing::within, nanoseconds, nullptr};
}

template <duration_like D>
constexpr wait_limit within(const D& timeout) {
  return within(to_nanos(timeout));
}

template <duration_like D>
wait_limit within(const D& timeout, const context& ctx) {
  return {wait_limit::timing::within, to_nanos(timeout), cancel_node_of(ctx)};
}

constexpr wait_limit until(std::int64_t deadline) noexcept {
  return {wait_limit::timing::until, deadline, nullptr};
}

template <time_point_like T>
wait_limit until(const T& t) {
  return until(to_deadline(t));
}

template <time_point_like T>
wait_limit until(const T& t, const context& ctx) {
  return {wait_limit::timing::until, to_deadline(t), cancel_node_of(ctx)};
}

inline wait_limit cancelled_by(const context& ctx) {
  return {wait_limit::timing::none, no_deadline, cancel_node_of(ctx)};
}

}  // namespace detail
}  // namespace vigil::inline VIGIL_ABI
