// The runtime: run(f), options, class runtime.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/fiber_core.hpp>
#include <vigil/fiber.hpp>
#include <vigil/options.hpp>
#include <vigil/post.hpp>
#include <vigil/stats.hpp>
#include <vigil/timer.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {
class runtime_core;
}

namespace vigil::inline VIGIL_ABI {

namespace detail {
struct runtime_access;  // of vigil-io's executors
}

// While it lives, somebody outside (a thread, a device) may still give the
// runtime something to do: no deadlock is reported, virtual time stands
// still. Movable; any thread; may outlive the runtime.
class [[nodiscard]] VIGIL_API work_guard {
 public:
  work_guard() noexcept = default;
  work_guard(work_guard&& other) noexcept;
  work_guard& operator=(work_guard&& other) noexcept;
  ~work_guard();

  void release() noexcept;  // as the destructor

 private:
  friend class runtime;
  friend struct detail::runtime_access;

  explicit work_guard(void* core) noexcept : core_(core) {}

  void* core_ = nullptr;
};

// A set of workers with their fibers and their timers. Most programs use
// run(f); a runtime object serves those that need it from outside: to start
// fibers from plain threads, to read statistics, to run several times. As many
// as there are threads for may run at once, each on a thread of its own.
//
// A child that was forked while a runtime ran, a side pool (blocking.hpp) had
// threads or io::resolve was under way, may only call exec; another one may use
// everything but runtimes of its parent's that have done I/O.
class VIGIL_API runtime {
 public:
  explicit runtime(options settings = {});
  ~runtime();  // not while run() is running, but for std::exit: that ends the program
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  // Runs f as the main fiber, pinned to the calling thread, and the other
  // fibers on the workers, until f returns; then shuts down: every other fiber
  // is unwound, none is alive when run returns. Returns f's result, 0 if it
  // returns nothing; throws what f threw, `deadlock`, or `cancelled` if a
  // signal of stop_on stopped an f that had a result to return. Throws
  // wrong_place inside a fiber and while it is already running;
  // std::system_error if a worker thread cannot be started (nothing runs
  // then). May be called again afterwards.
  // Waits on a thread: throws wrong_place, deadlock, cancelled, std::system_error,
  // std::invalid_argument, what f throws.
  template <class F>
    requires std::is_invocable_v<F&>
  auto run(F&& f) {
    using R = std::invoke_result_t<F&>;
    detail::refuse_empty("vigil::runtime::run", f);
    if constexpr (std::is_void_v<R>) {
      run_main(f, false);
      return 0;
    } else {
      std::optional<R> result;
      auto main = [&] { result.emplace(f()); };
      run_main(main, true);
      return R(std::move(*result));
    }
  }

  // As vigil::go, from any thread. Outside run() the fiber waits for the next
  // one; at the very end of a run, when all other fibers have ended, it throws
  // runtime_gone.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>>
  void go(F&& f, const site& from = site::current()) {
    detail::start_by(
        {.name = "vigil::runtime::go", .sched = sched()}, {}, true, from, std::forward<F>(f));
  }

  // As vigil::after_func, from any thread.
  template <detail::duration_like D, class F>
    requires std::is_invocable_v<std::decay_t<F>&>
  timer after_func(const D& d, F&& f, const site& from = site::current()) {
    return timer(detail::after_func_in(
        sched(), detail::to_nanos(d), detail::callback(std::forward<F>(f)), from));
  }

  // As vigil::post, from any thread. Outside run() the function waits for the
  // next one.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&>
  void post(F&& f, const site& from = site::current()) {
    detail::post_to(sched(), detail::callback(std::forward<F>(f)), from);
  }

  [[nodiscard]] work_guard make_work_guard();

  // Starts the shutdown, as a signal of stop_on would. Any thread; returns at
  // once. Outside run() the stop is kept for the next one, as what go and post are
  // given: that run calls its f with the root context done and, once the grace is
  // over, ends every wait in it. A stop lasts for one run, however often it was asked
  // for; one that comes before run() returns is that run's. To drop one that is
  // kept: run([] {}).
  void request_stop() noexcept;

  runtime_stats stats() const;

  // The runtime of the calling fiber, also inside testing::run_virtual; throws
  // wrong_place elsewhere.
  static runtime& current();

 private:
  friend struct detail::runtime_access;
  void* sched() noexcept;
  explicit runtime(detail::runtime_core* made);  // takes it over
  void run_main(detail::call_ref main, bool wants_result);

  detail::runtime_core* core_;
};

// runtime(settings).run(f), the usual way in:
//
//   int main() { return vigil::run([] { … }); }
template <class F>
auto run(const options& settings, F&& f) {
  runtime rt(settings);
  return rt.run(std::forward<F>(f));
}

template <class F>
auto run(F&& f) {
  return run(options{}, std::forward<F>(f));
}

// Counters of the calling fiber's runtime.
VIGIL_API runtime_stats stats();

}  // namespace vigil::inline VIGIL_ABI
