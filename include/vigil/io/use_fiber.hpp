// use_fiber: a completion token that makes any asynchronous operation of Asio one
// call of a fiber, which waits there until the operation is complete.
//
//   std::size_t n = socket.async_read_some(buffer, io::use_fiber);
//   std::size_t n = socket.async_read_some(buffer, io::use_fiber.within(5s));
//
// The signature decides what is returned and thrown. With void(error_code, Ts...) and
// void(exception_ptr, Ts...) an error is thrown, as boost::system::system_error or as the
// exception itself, and Ts are returned: nothing, the one value, or a tuple. Other
// signatures return all values, which may be move-only. as_tuple, redirect_error,
// bind_executor, bind_allocator and bind_cancellation_slot go around it, in any order.
//
// How a wait may end otherwise (more at fiber_token, below):
//
//   until(t), within(d)  the operation is cancelled; the error is then
//                        boost::asio::error::timed_out, and its message says which
//                        time is over. Zero or less, or in the past: at once, but
//                        what is complete already counts
//   under(ctx)           when ctx is done: throws vigil::cancelled
//   the fiber is stopped throws vigil::stopped
//   the operation is destroyed (its io_context is): error operation_aborted
//
// Thread safety: Asio's. One fiber may read while another writes; no two may do the
// same, nor one close or destroy what the other uses.
#pragma once

#include <vigil/context.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/config.hpp>

namespace vigil::io::inline VIGIL_ABI {
namespace detail {

struct token_access;

}  // namespace detail

// use_fiber with a deadline or a context, or both; the last until or within counts.
//
// At a deadline, a cancel and a stop the operation is cancelled
// (cancellation_type::terminal), and the call returns only when its handler has run, so
// that nothing touches the caller's buffer afterwards. If the operation succeeded all the
// same, its result is returned. If it failed by itself, the call reports that error after
// a deadline, but `cancelled` or `stopped` in the other two cases. These codes count as
// cancelled: operation_aborted, channel_cancelled of Asio's channels, and any that equals
// errc::operation_canceled. An operation that ignores cancellation (resolving a name)
// keeps its caller until it completes; so does one on an io_context that is not run, or
// is stopped, unless it is the runtime's (io/context.hpp).
//
// Waiting is outside work: no deadlock is reported and virtual time stands still.
// Handlers run where the I/O object's executor or bind_executor says, on the worker's own
// stack or on a thread of the caller's; they mark the fiber ready.
//
// Throws wrong_place outside a fiber, which includes handlers, even those that a fiber
// runs itself, if the executor of the I/O object or the bound one is that of the same
// io_context (without a strand); and std::bad_alloc. Other waits in handlers that a fiber
// runs are not noticed: run() and poll() in a fiber belong under this_fiber::no_park.
class fiber_token {
 public:
  fiber_token() noexcept = default;

  // The operation. time_point::max(): no deadline.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  template <vigil::detail::time_point_like Time>
  [[nodiscard]] fiber_token until(const Time& t) const {
    return with(vigil::detail::until(t));
  }

  // From the moment at which the operation is begun.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  template <vigil::detail::duration_like D>
  [[nodiscard]] fiber_token within(const D& d) const {
    return with(vigil::detail::within(d));
  }

  // Keeps a copy of ctx. Throws std::invalid_argument for a nil context.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  [[nodiscard]] fiber_token under(const vigil::context& ctx) const {
    fiber_token next = *this;
    next.limit_.cancelled_by = vigil::detail::cancel_node_of(ctx);
    next.kept_ = ctx;
    return next;
  }

 private:
  friend struct detail::token_access;

  fiber_token with(vigil::detail::wait_limit limit) const {
    fiber_token next = *this;
    limit.cancelled_by = limit_.cancelled_by;
    next.limit_ = limit;
    return next;
  }

  vigil::detail::wait_limit limit_;
  vigil::context kept_;  // for the limit
  bool* destroyed_ = nullptr;
};

class use_fiber_t {
 public:
  template <vigil::detail::time_point_like Time>
  [[nodiscard]] fiber_token until(const Time& t) const {
    return fiber_token().until(t);
  }

  template <vigil::detail::duration_like D>
  [[nodiscard]] fiber_token within(const D& d) const {
    return fiber_token().within(d);
  }

  [[nodiscard]] fiber_token under(const vigil::context& ctx) const {
    return fiber_token().under(ctx);
  }
};

inline constexpr use_fiber_t use_fiber{};

}  // namespace vigil::io::inline VIGIL_ABI

#include <vigil/io/detail/use_fiber.hpp>
