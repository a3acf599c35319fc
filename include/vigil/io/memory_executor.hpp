// memory_executor: the default executor for handlers of memory streams and acceptors, and
// for the steps of composed operations on them (asio::async_read, Beast's).
//
// Each handler runs on a fiber, started as if by go(), of the runtime whose fiber or
// handler completes the operation. So on virtual time the seed decides the order, and
// replays it. A handler runs on a thread of Asio's system_context instead
// - if no fiber can be had (limits, stacks, memory), as outside work;
// - if a plain thread completes the operation. This is not counted, so that thread's
//   work_guard must live until the operation has ended.
//
// The executor counts no work: an operation over it is taken to complete inside the
// program, as memory_stream says. Handlers may wait, but the steps of an operation that
// was begun with use_fiber may not: a wait there ends the program with a message.
// Handlers run until the last fiber of the run has ended; later ones are destroyed. An
// exception that leaves one goes to options::on_unhandled. The executor's context is
// Asio's system_context, where timers and sockets made on it live.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/config.hpp>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution_context.hpp>

namespace VIGIL_IO {
namespace detail {

VIGIL_API void start_in_program(const std::function<void()>& f);

VIGIL_API boost::asio::execution_context& context_of_memory() noexcept;

}  // namespace detail

// memory_executor: an executor whose handlers run within the program. Throws
// std::bad_alloc from execute(). Thread safety: any thread; all executors are equal.
// Lifetime: it refers to nothing. Shutdown: handlers run until the last fiber has ended;
// later ones are destroyed. Cost: a fiber for each handler, and allocations for that.
class memory_executor {
  using blocking_t = boost::asio::execution::blocking_t;

 public:
  // Never runs f at once. Throws std::bad_alloc.
  template <class F>
  void execute(F&& f) const {
    using handler = std::decay_t<F>;
    detail::start_in_program([kept = std::make_shared<handler>(std::forward<F>(f))] {
      handler own(std::move(*kept));
      std::move(own)();
    });
  }

  static constexpr memory_executor require(blocking_t::never_t) noexcept { return {}; }

  static constexpr blocking_t query(blocking_t) noexcept { return blocking_t::never_t(); }

  static boost::asio::execution_context& query(boost::asio::execution::context_t) noexcept {
    return detail::context_of_memory();
  }

  friend constexpr bool operator==(memory_executor, memory_executor) noexcept { return true; }

  friend constexpr bool operator!=(memory_executor, memory_executor) noexcept { return false; }
};

}  // namespace VIGIL_IO
