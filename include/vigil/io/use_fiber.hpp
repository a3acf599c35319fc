// use_fiber: a completion token that makes any asynchronous operation of Asio one call on
// a fiber, which waits there until the operation is complete.
//
//   std::size_t n = socket.async_read_some(buffer, io::use_fiber);
//   std::size_t n = socket.async_read_some(buffer, io::use_fiber.within(5s));
//
// The signature decides what is returned and thrown. With void(error_code, Ts...) and
// void(exception_ptr, Ts...) an error is thrown, as boost::system::system_error or as the
// exception itself, and Ts are returned: nothing, the one value, or a tuple. Other
// signatures return all values, which may be move-only. as_tuple, redirect_error,
// bind_executor, bind_allocator and bind_cancellation_slot may wrap it in any order.
//
// Other ends of a wait (details at fiber_token, below):
//
//   until(t), within(d)  when the time is over: the operation is cancelled, and its error
//                        is boost::asio::error::timed_out, whose message says which time.
//                        If d is zero or negative, or t has passed, only an operation that
//                        is complete already succeeds
//   under(ctx)           when ctx is done: throws vigil::cancelled
//   a stop of the fiber  throws vigil::stopped
//   the operation is destroyed (its io_context is): error operation_aborted
#pragma once

#include <vigil/context.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/config.hpp>

namespace VIGIL_IO {
namespace detail {

struct token_access;

}  // namespace detail

// fiber_token: use_fiber with a deadline, a context, or both; of several until() and
// within() the last one counts. A coroutine that co_spawn starts with it is cancelled
// likewise, on any executor; it must be an asio::awaitable<T>, with no executor type of
// its own, and run on its this_coro::executor only.
//
// Thread safety: a token is a plain value; the I/O object has Asio's. On several workers
// no two fibers may call an object at a time, not even one to read and another to write,
// cancel or close: see deadline_stream. Any fiber or thread may cancel the context of a
// wait. Lifetime: a token keeps its context; buffers may be locals of the caller.
// Behaviour: Asio's yield_context, with deadlines.
//
// At a deadline, a cancel and a stop the operation is cancelled
// (cancellation_type::terminal), and the call returns only when its handler has run, so
// nothing touches the caller's buffer afterwards. If the operation still succeeded, its
// result is returned. If it failed by itself, the call reports that error after a
// deadline, but `cancelled` or `stopped` in the other two cases. These codes count as
// cancelled: operation_aborted, the channel_cancelled of Asio's channels, and any code
// equal to errc::operation_canceled. An operation that ignores cancellation (resolving a
// name) keeps its caller until it completes; so does one on an io_context that is not run
// or is stopped, unless that is the runtime's (io/io_context.hpp).
//
// Shutdown: cancels the operation, and throws `stopped` unless it still succeeded. Cost:
// that of Asio's operation, and two switches.
//
// The wait is outside work: no deadlock is reported, and virtual time stands still.
// Handlers run where the I/O object's executor or bind_executor says, on the worker's own
// stack or on a thread of the program; they mark the fiber ready.
//
// Throws wrong_place outside a fiber, which includes handlers, even those that a fiber
// runs itself if the executor of the I/O object or the bound one is that of the same
// io_context (without a strand); and std::bad_alloc. Other waits in handlers that a fiber
// runs are not noticed, so call run() and poll() in a fiber only under
// this_fiber::no_park.
class fiber_token {
 public:
  fiber_token() noexcept = default;

  // Limits the operation by a deadline; time_point::max() means none.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  template <vigil::detail::time_point_like Time>
  [[nodiscard]] fiber_token until(const Time& t) const {
    return with(vigil::detail::until(t));
  }

  // Limits the operation by a timeout, counted from its beginning.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  template <vigil::detail::duration_argument D>
  [[nodiscard]] fiber_token within(const D& d) const {
    return with(vigil::detail::within(d));
  }

  // Limits the operation by ctx, of which it keeps a copy. Throws std::invalid_argument
  // for a nil context.
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
  const void* object_ = nullptr;  // for dumps
};

// use_fiber_t: the type of use_fiber, a token without a limit; its members return a
// fiber_token, which says how the wait ends. Throws what fiber_token throws. Thread
// safety: a constant. Lifetime: that of fiber_token. Shutdown: that of fiber_token. Cost:
// that of fiber_token.
class use_fiber_t {
 public:
  template <vigil::detail::time_point_like Time>
  [[nodiscard]] fiber_token until(const Time& t) const {
    return fiber_token().until(t);
  }

  template <vigil::detail::duration_argument D>
  [[nodiscard]] fiber_token within(const D& d) const {
    return fiber_token().within(d);
  }

  [[nodiscard]] fiber_token under(const vigil::context& ctx) const {
    return fiber_token().under(ctx);
  }
};

// use_fiber: the token that makes an asynchronous operation one call on a fiber.
inline constexpr use_fiber_t use_fiber{};

}  // namespace VIGIL_IO

#include <vigil/io/detail/use_fiber.hpp>
