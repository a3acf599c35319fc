// fiber_executor: an executor of Asio whose handlers run as fibers of the runtime. So
// they may wait, and coroutines and fibers live side by side.
//
//   asio::co_spawn(io::executor(), [jobs]() -> asio::awaitable<void> {
//     asio::steady_timer t(co_await asio::this_coro::executor, 1s);
//     co_await t.async_wait(asio::use_awaitable);
//     jobs.send("one");                     // a channel of fibers: waits, too
//   }, asio::detached);
//
// It works wherever an any_io_executor does: for co_spawn, bind_executor, make_strand,
// and for sockets and timers, which then live in io::io_context(). (Handlers on
// io::io_context().get_executor() run on the workers' own stacks and may not wait.)
//
// Each handler runs like a posted function (post.hpp): on a fiber of a pool, on any
// worker. Those of one thread start in order, and two may run at a time. A dispatch
// inside a handler of the same runtime runs at once. While a handler waits, its coroutine
// stands still, but its worker does not. A stop of the fiber throws vigil::stopped into
// the handler. An exception that leaves one goes to options::on_unhandled. I/O that
// completes here does not wait behind a fiber that computes while another worker is idle.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/fiber.hpp>
#include <vigil/io/detail/config.hpp>
#include <vigil/runtime.hpp>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/mapping.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/strand.hpp>

namespace VIGIL_DETAIL {
struct outside_gate;
}  // namespace VIGIL_DETAIL

namespace VIGIL_IO {
namespace detail {

// The runtime of an executor.
struct executor_home {
  std::shared_ptr<vigil::detail::outside_gate> gate;
  boost::asio::execution_context* context;
};

// Runs f as a posted function, or drops it if the runtime is gone.
VIGIL_API void post_handler(const executor_home& home, vigil::detail::callback f);

// Announces that handlers are to come, as a work_guard announces other work. While it
// lives, an idle worker waits for I/O whatever the others do.
class VIGIL_API counted_work {
 public:
  explicit counted_work(const executor_home& home);
  ~counted_work();
  counted_work(const counted_work&) = delete;
  counted_work& operator=(const counted_work&) = delete;

 private:
  std::shared_ptr<vigil::detail::outside_gate> gate_;
};

// Whether the calling fiber runs a handler of this runtime's executor.
VIGIL_API bool is_inside(const executor_home& home) noexcept;

class VIGIL_API inside_scope {
 public:
  explicit inside_scope(const executor_home& home);
  ~inside_scope();
  inside_scope(const inside_scope&) = delete;
  inside_scope& operator=(const inside_scope&) = delete;

 private:
  const void* before_;
};

// Whether F is the function that an Asio strand passes to its executor. Its type is a
// private class of Asio, the same in each Boost since 1.81. With a Boost that renames it
// this line does not compile, so a strand is never overlooked.
template <class F>
struct is_of_a_strand : std::false_type {};

template <class Executor, class Enabled>
struct is_of_a_strand<boost::asio::detail::strand_executor_service::invoker<Executor, Enabled>>
    : std::true_type {};

template <class F>
class posted_handler {
 public:
  template <class G>
  posted_handler(const executor_home& home, G&& f)
      : home_(home), handler_(std::make_shared<F>(std::forward<G>(f))) {}

  void operator()() {
    F own(std::move(*handler_));
    handler_.reset();
    const inside_scope inside(home_);
    std::optional<this_fiber::no_park> unmoved;
    if constexpr (is_of_a_strand<F>::value) unmoved.emplace();
    std::move(own)();
  }

 private:
  executor_home home_;
  // Shared with execute(): the last owner, which destroys it, holds no lock.
  std::shared_ptr<F> handler_;
};

}  // namespace detail

// basic_fiber_executor: an executor whose handlers run as fibers. A handler that waits to
// start, a co_spawned coroutine and an operation in progress keep a program with
// exit_when::all_done alive, and are no deadlock.
//
// A strand over it runs its handlers one after the other, but they must not wait: Asio
// records "inside the strand" for each thread, and a waiting fiber may continue on
// another one. A wait ends the program with a message if the strand's executor is a
// fiber_executor, not an any_io_executor. Use a vigil::mutex instead, whose holders may
// wait.
//
// `Posts` selects blocking.never instead of blocking.possibly; `Counts`
// outstanding_work.tracked instead of untracked.
//
// Throws std::bad_alloc from execute(), and the exception of a handler that runs at once.
// Thread safety: all members may be called from any thread; copies are equal. Lifetime:
// an executor may outlive the runtime, but its context() does not. Shutdown: handlers
// start until the last fiber and task has ended; then those that have not started are
// destroyed, and so are those of operations that complete after the runtime's end. Cost:
// that of post() for a handler, and some allocations.
template <bool Posts, bool Counts>
class basic_fiber_executor {
  using blocking_t = boost::asio::execution::blocking_t;
  using outstanding_work_t = boost::asio::execution::outstanding_work_t;

 public:
  explicit basic_fiber_executor(detail::executor_home home)
      : home_(std::move(home)),
        work_(Counts ? std::make_shared<detail::counted_work>(home_) : nullptr) {}

  // Throws std::bad_alloc, and the exception of an f that runs at once.
  template <class F>
  void execute(F&& f) const {
    using handler = std::decay_t<F>;
    if constexpr (!Posts) {
      if (detail::is_inside(home_)) {
        handler own(std::forward<F>(f));
        std::move(own)();
        return;
      }
    }
    detail::posted_handler<handler> posted(home_, std::forward<F>(f));
    detail::post_handler(home_, vigil::detail::callback(posted));
  }

  basic_fiber_executor<true, Counts> require(blocking_t::never_t) const {
    return basic_fiber_executor<true, Counts>(home_);
  }

  basic_fiber_executor<false, Counts> require(blocking_t::possibly_t) const {
    return basic_fiber_executor<false, Counts>(home_);
  }

  basic_fiber_executor<Posts, true> require(outstanding_work_t::tracked_t) const {
    return basic_fiber_executor<Posts, true>(home_);
  }

  basic_fiber_executor<Posts, false> require(outstanding_work_t::untracked_t) const {
    return basic_fiber_executor<Posts, false>(home_);
  }

  boost::asio::execution_context& query(boost::asio::execution::context_t) const noexcept {
    return *home_.context;
  }

  static constexpr blocking_t query(blocking_t) noexcept {
    if constexpr (Posts) {
      return blocking_t::never_t();
    } else {
      return blocking_t::possibly_t();
    }
  }

  static constexpr outstanding_work_t query(outstanding_work_t) noexcept {
    if constexpr (Counts) {
      return outstanding_work_t::tracked_t();
    } else {
      return outstanding_work_t::untracked_t();
    }
  }

  static constexpr boost::asio::execution::mapping_t query(
      boost::asio::execution::mapping_t) noexcept {
    return boost::asio::execution::mapping_t::other_t();
  }

  friend bool operator==(const basic_fiber_executor& a, const basic_fiber_executor& b) noexcept {
    return a.home_.gate == b.home_.gate;
  }

  friend bool operator!=(const basic_fiber_executor& a, const basic_fiber_executor& b) noexcept {
    return !(a == b);
  }

 private:
  detail::executor_home home_;
  std::shared_ptr<detail::counted_work> work_;
};

// fiber_executor: the basic_fiber_executor that executor() returns.
using fiber_executor = basic_fiber_executor<false, false>;

// Returns the executor of the calling fiber's runtime. Its context is io::io_context().
// Throws what io::io_context() throws. Thread safety: any fiber. Lifetime: that of
// basic_fiber_executor. Shutdown: that of basic_fiber_executor. Cost: that of
// io::io_context().
VIGIL_API fiber_executor executor();

}  // namespace VIGIL_IO
