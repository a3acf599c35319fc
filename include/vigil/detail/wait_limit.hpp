// wait_limit: how long a call may wait, and which context ends it. Each call that waits
// passes one to its core function, and so has three forms of one line each.
//
//   bool wait_for(const D& timeout) { return detail::wait(core_, detail::within(timeout)); }
//
// Does not need <chrono>: duration.hpp and deadline.hpp define which types count as a
// time.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/deadline.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/handle.hpp>

#include <cstdint>

namespace VIGIL_PUBLIC {

class context;  // context.hpp

namespace detail {

class cancel_node;  // the node of a context that ends others' waits

// nullptr for a context that is never done. Throws std::invalid_argument for a nil
// context.
VIGIL_API cancel_node* cancel_node_of(const context& ctx);

struct wait_limit {
  enum class timing : std::uint8_t { none, within, until };

  constexpr bool is_timed() const noexcept { return time != timing::none; }

  constexpr bool is_relative() const noexcept { return time == timing::within; }

  // The same context with this deadline.
  constexpr wait_limit until(std::int64_t deadline) const noexcept {
    return {timing::until, deadline, cancelled_by};
  }

  // The deadline that this means at `now`, saturated; no_deadline without a time.
  constexpr std::int64_t as_deadline(std::int64_t now) const noexcept {
    return is_relative() ? saturating_add(now, nanoseconds) : nanoseconds;
  }

  // The same by the caller's clock, which is read only if needed.
  std::int64_t as_deadline() const noexcept {
    return is_relative() ? as_deadline(now()) : nanoseconds;
  }

  // For several waits: a timeout becomes the deadline that counts from now.
  wait_limit absolute() const noexcept { return is_relative() ? until(as_deadline()) : *this; }

  // Whether the time is over, so that nothing is to be waited for. Does not look at the
  // node. Reads the clock for a deadline: not to be called under a contended spinlock.
  bool is_over() const noexcept {
    if (is_relative()) return nanoseconds <= 0;
    return nanoseconds != no_deadline && nanoseconds <= now();
  }

  timing time = timing::none;
  std::int64_t nanoseconds = no_deadline;  // from now (within), or of vigil::clock (until)
  cancel_node* cancelled_by = nullptr;     // a context's node
};

// For calls that wait without a limit.
inline constexpr wait_limit no_limit{};

VIGIL_API void retain(cancel_node* node) noexcept;
VIGIL_API void release(cancel_node* node) noexcept;

// kept_limit: keeps the node of a limit alive. A limit itself does not: its context
// exists when a call begins, but may go as soon as the caller has waited or has run a
// function of the user's. So each wait has a `caller` (src/core/sched/call/caller.hpp),
// which keeps the node while it lives and looks at the node afterwards. A call that has
// several waits, or runs a function before one, keeps the node around all of them, by one
// caller, one kept_limit, or a context of its own.
class kept_limit {
 public:
  explicit kept_limit(const wait_limit& l) noexcept
      : limit(l), node_(handle<cancel_node>::to(l.cancelled_by)) {}

  kept_limit(const kept_limit&) = delete;
  kept_limit& operator=(const kept_limit&) = delete;

  const wait_limit limit;

 private:
  const handle<cancel_node> node_;
};

// --- Makes a limit, from nanoseconds or from the user's types.

template <duration_argument D>
constexpr wait_limit within(const D& timeout) {
  return {wait_limit::timing::within, to_nanos(timeout), nullptr};
}

template <duration_argument D>
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
}  // namespace VIGIL_PUBLIC
