// memory_executor: the default executor for handlers of memory streams and
// acceptors, including the steps of composed operations (asio::async_read,
// Beast's). Each runs on a fiber of its own, as by go(), of the runtime whose fiber
// or handler completes the operation: so on virtual time the seed decides their
// order, and replays it. If no fiber can be had (limits, stacks, memory) a handler
// runs on a thread of Asio's system_context, as outside work. So does one that a
// plain thread completes, uncounted: that thread's work_guard must live until the
// operation has ended.
//
// It counts no work: an operation over it is held to be completed inside the program, as
// memory_stream says. Handlers may wait, but for the steps of an operation begun with
// use_fiber: a wait there ends the program with a message. They run until the
// last fiber of the run has ended; later ones are destroyed. An exception that
// leaves one goes to options::on_unhandled. Its context is Asio's
// system_context: timers and sockets made on it live there.
//
// Thread safety: any; all are equal.
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

namespace vigil::io::inline VIGIL_ABI {
namespace detail {

VIGIL_API void start_in_program(const std::function<void()>& f);

VIGIL_API boost::asio::execution_context& context_of_memory() noexcept;

}  // namespace detail

class memory_executor {
  using blocking_t = boost::asio::execution::blocking_t;

 public:
  // Never at once. Throws std::bad_alloc.
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

}  // namespace vigil::io::inline VIGIL_ABI
