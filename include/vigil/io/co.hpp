// I/O in tasks: streams, operations of Asio, and Asio's own coroutines.
//
//   vigil::task<> echo(io::deadline_stream<tcp::socket> s) {
//     char room[1024];
//     for (;;) {
//       const std::size_t n = co_await io::co::read_some(s, asio::buffer(room));
//       co_await io::co::write(s, asio::buffer(room, n));
//     }
//   }
//
// An error comes out of co_await as boost::system::system_error, as it does of the
// functions for fibers. A stop and the end of the run leave it as `stopped`. The objects
// and buffers that are named must live until the wait is over.
#pragma once

#include <vigil/co.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/pending.hpp>
#include <vigil/io/select.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>

namespace VIGIL_IO {
namespace co {

// Reads some bytes, at least one unless the buffer is empty, and returns their number.
// Throws boost::system::system_error, and `stopped`. Thread safety: that of the stream.
// Lifetime: the stream and the memory of the buffer outlive the wait. Shutdown: throws
// `stopped`. Cost: a frame, but no stack.
template <class Stream, class Buffers>
task<std::size_t> read_some(Stream& from, Buffers into) {
  std::size_t read = 0;
  co_await vigil::co::select(on_read(from, into, [&read](std::size_t n) { read = n; }));
  co_return read;
}

// Writes some bytes, at least one unless the buffer is empty, and returns their number.
// Throws what co::read_some throws. Thread safety: that of the stream. Lifetime: that of
// co::read_some. Shutdown: throws `stopped`. Cost: a frame, but no stack.
template <class Stream, class Buffers>
task<std::size_t> write_some(Stream& to, Buffers bytes) {
  std::size_t written = 0;
  co_await vigil::co::select(on_write(to, bytes, [&written](std::size_t n) { written = n; }));
  co_return written;
}

// Writes all of the bytes. If an error or a stop ends it, some of them may have gone.
// Throws what co::read_some throws. Thread safety: that of the stream. Lifetime: that of
// co::read_some. Shutdown: throws `stopped`. Cost: a frame, but no stack.
template <class Stream>
task<> write(Stream& to, boost::asio::const_buffer bytes) {
  while (bytes.size() != 0)
    bytes += co_await write_some(to, bytes);
}

// Waits for a named operation, and takes its result. Throws what pending::get() throws.
// Thread safety: that of pending. Lifetime: the pending outlives the wait. Shutdown:
// throws `stopped`. Cost: a frame, but no stack.
template <class R>
task<R> result(pending<R>& of) {
  if constexpr (std::is_void_v<R>) {
    co_await vigil::co::select(on_result(of));
  } else {
    std::optional<R> value;
    co_await vigil::co::select(on_result(of, [&value](R r) { value.emplace(std::move(r)); }));
    co_return *std::move(value);
  }
}

// Runs a coroutine of Asio's on the executor, and returns its result or throws its
// exception. A stop, at any moment, asks it to end, by the cancellation that its
// operations honour, and waits for its end; co_await then throws `stopped`, and a result
// that came nevertheless is dropped. The coroutine is an asio::awaitable<T>: a stop can
// end none with an executor type of its own. It must run on its this_coro::executor only.
// Throws the coroutine's exception, and `stopped`. Thread safety: any task; the coroutine
// runs on its executor. Lifetime: the coroutine has ended when the wait is over.
// Shutdown: as a stop. Cost: that of pending, and of Asio's co_spawn.
template <class Executor, class T, class Own>
task<T> spawned(Executor on, boost::asio::awaitable<T, Own> coroutine) {
  pending<T> p([&](auto token) {
    return boost::asio::co_spawn(on, std::move(coroutine), std::move(token));
  });
  if constexpr (std::is_void_v<T>) {
    co_await result(p);
  } else {
    p.on_lost([](auto&&...) {});
    co_return co_await result(p);
  }
}

}  // namespace co

namespace detail {

// Runs a task, and hands its outcome to a handler of Asio's, on the handler's executor.
template <class T, class Handler, class Executor>
task<> completes(task<T> of, Handler handler, Executor on) {
  const auto work = boost::asio::make_work_guard(on);
  std::exception_ptr error;
  if constexpr (std::is_void_v<T>) {
    try {
      co_await std::move(of);
    } catch (...) {
      error = std::current_exception();
    }
    boost::asio::post(on, [h = std::move(handler), e = std::move(error)]() mutable {
      std::move(h)(std::move(e));
    });
  } else {
    T value{};
    try {
      value = co_await std::move(of);
    } catch (...) {
      error = std::current_exception();
    }
    boost::asio::post(
        on, [h = std::move(handler), e = std::move(error), v = std::move(value)]() mutable {
          std::move(h)(std::move(e), std::move(v));
        });
  }
}

}  // namespace detail

// Runs a task as an asynchronous operation of Asio's, so that a coroutine of Asio's can
// await it:
//
//   int n = co_await io::async_run(answer(), asio::use_awaitable);
//
// It completes with std::exception_ptr and, unless T is void, a T, which must be default
// constructible. `stopped` and `cancelled` are among the exceptions. A cancellation slot
// of Asio's does not stop the task: give that a context.
//
// Throws wrong_place on a thread without a runtime, such as that of a guest's
// io_context(), where the coroutine that awaits it ends and the exception goes to
// options::on_unhandled. On executor() it works. Thread safety: any fiber, and handlers
// on executor(). Lifetime: the task owns its parameters, and the operation the task.
// Shutdown: the task is stopped, and completes with `stopped`. Cost: that of a task, and
// a post to the handler's executor.
template <class T, class Token>
auto async_run(task<T> of, Token&& token) {
  using signature =
      typename std::conditional_t<std::is_void_v<T>,
                                  std::type_identity<void(std::exception_ptr)>,
                                  std::type_identity<void(std::exception_ptr, T)>>::type;
  return boost::asio::async_initiate<Token, signature>(
      [](auto handler, task<T> body) {
        auto on = boost::asio::get_associated_executor(handler);
        go(detail::completes(std::move(body), std::move(handler), std::move(on)));
      },
      token,
      std::move(of));
}

}  // namespace VIGIL_IO
