// run(f), and class runtime.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/fiber_core.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/fiber.hpp>
#include <vigil/options.hpp>
#include <vigil/post.hpp>
#include <vigil/stats.hpp>
#include <vigil/timer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace VIGIL_DETAIL {
class runtime_core;
class scheduler;
struct outside_hold;
}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC {

namespace detail {
struct runtime_access;  // for the executors of vigil-io

// The kind of result of main's function: nothing, an exit status, or something else.
enum class main_result : std::uint8_t { none, status, other };
}  // namespace detail

// work_guard: announces outside work. While one lives, something outside the runtime (a
// thread, a device) may still give it work, so no deadlock is reported and virtual time
// stands still. Throws nothing; make_work_guard() throws std::bad_alloc.
//
// Thread safety: one thread at a time, whichever. Lifetime: it may outlive the runtime.
// Shutdown: it delays none, but with exit_when::all_done the run waits for it. Cost: one
// allocation.
class [[nodiscard]] VIGIL_API work_guard {
 public:
  work_guard() noexcept = default;
  work_guard(work_guard&& other) noexcept;
  work_guard& operator=(work_guard&& other) noexcept;
  ~work_guard();

  void release() noexcept;  // does what the destructor does

 private:
  friend class runtime;
  friend struct detail::runtime_access;

  explicit work_guard(detail::outside_hold* hold) noexcept : hold_(hold) {}

  detail::outside_hold* hold_ = nullptr;
};

// runtime: a set of workers with their fibers and timers. Most programs need only run(f).
// A runtime object is for programs that start fibers from plain threads, read statistics,
// or run several times. Several runtimes may run at once, each on a thread of its own.
// Throws std::invalid_argument from the constructor for options out of range; otherwise
// what each call says.
//
// Thread safety: go, after_func, post, make_work_guard, request_stop, stop_signal and
// stats from any thread; run() on one at a time. Lifetime: it outlives its runs; handles
// of its timers, fibers and contexts may outlive it. Shutdown: run() begins it as f
// returns, or with exit_when::all_done when nothing is left to do, unless a stop has
// begun it before; run() returns when all fibers have ended. Cost: run() starts a thread
// for each worker but the caller's, and as a rule one for the overseer; an idle run uses
// no CPU.
//
// After a fork the child may only call exec or _exit, if at that moment a runtime was
// running, a side pool (blocking.hpp) had threads, or an io::resolve was in progress: a
// wait or a start there ends it with a message, and a lock of the library that another
// thread held stays locked. Otherwise it may use all of vigil, except runtimes of its
// parent that have done I/O.
class VIGIL_API runtime {
 public:
  explicit runtime(options settings = {});
  ~runtime();  // not during run(), except by std::exit, which ends the program
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  // Runs f as the main fiber and the other fibers on the workers, one of which is the
  // calling thread, until f returns. f begins there; after a wait it may go on on another
  // worker (options::pin_main). Then shuts down: every other fiber is unwound, so none is
  // left when run returns. Returns f's result, or 0 if f returns nothing. If a signal of
  // options::stop_on came and f was unwound, an f that returns nothing or an int gives
  // 128 + the signal; stop_signal() tells that from a result of f. May be called again
  // afterwards.
  //
  // Throws the exception of f; `deadlock`; `cancelled` if a stop ended any other f that
  // had a result to return; wrong_place inside a fiber, or if the runtime is running
  // already; std::system_error if a worker thread cannot be started (nothing has run
  // then).
  // Waits on a thread: throws wrong_place, deadlock, cancelled, std::system_error,
  // std::invalid_argument, what f throws.
  template <class F>
  auto run(F&& f) {
    static_assert(detail::checked_function<F&>::is_done);
    using R = std::invoke_result_t<F&>;
    detail::refuse_empty("vigil::runtime::run", f);
    if constexpr (std::is_void_v<R>) {
      return run_main(f, detail::main_result::none);
    } else {
      std::optional<R> result;
      auto main = [&] { result.emplace(f()); };
      if constexpr (std::is_same_v<R, int>) {
        const int status = run_main(main, detail::main_result::status);
        return result ? *result : status;
      } else {
        run_main(main, detail::main_result::other);
        return R(std::move(*result));
      }
    }
  }

  // Like vigil::go, from any thread. Outside run() the fiber waits for the next run. At
  // the very end of a run, when all other fibers have ended, it throws runtime_gone.
  template <class F>
  void go(F&& f, const site& from = site::current()) {
    static_assert(detail::checked_function<std::decay_t<F>>::is_done);
    detail::start_by(
        {.name = "vigil::runtime::go", .sched = &sched()}, {}, true, from, std::forward<F>(f));
  }

  // Like vigil::after_func, from any thread. Outside run() the timer is kept for the next
  // run, which starts f at once if its time has come.
  template <detail::duration_argument D, class F>
  timer after_func(const D& d, F&& f, const site& from = site::current()) {
    return timer(detail::after_func_in(
        sched(), detail::to_nanos(d), detail::timer_callback<timer>(std::forward<F>(f)), from));
  }

  // Like vigil::post, from any thread. Outside run() the function waits for the next run.
  template <class F>
  void post(F&& f, const site& from = site::current()) {
    detail::post_to(sched(), detail::callback(std::forward<F>(f)), from);
  }

  // Like vigil::post with stoppable, from any thread.
  template <class F>
  timer post(F&& f, stoppable_t, const site& from = site::current()) {
    return timer(
        detail::post_to(sched(), detail::timer_callback<timer>(std::forward<F>(f)), from, true));
  }

  [[nodiscard]] work_guard make_work_guard();

  // Starts the shutdown, as a signal of options::stop_on does, but without a grace if
  // none was given, and returns at once. Any thread. Outside run() the request is kept
  // for the next run, which then calls f with the root context done and, after the grace,
  // ends each of its waits. A request counts for one run only, however often it is made;
  // one made before run() returns belongs to that run. `run([] {})` discards a request
  // that is kept.
  void request_stop() noexcept;

  // The first signal of options::stop_on that came in the present run, or if none is
  // running in the last one; 0 if none came. Any thread.
  int stop_signal() const noexcept;

  runtime_stats stats() const;

  // The runtime of the calling fiber, even inside testing::run_virtual. Throws
  // wrong_place elsewhere.
  static runtime& current();

 private:
  friend struct detail::runtime_access;
  detail::scheduler& sched() noexcept;
  explicit runtime(detail::runtime_core* made);  // takes ownership
  // Returns the status of a run without a result: 0, or 128 + the signal.
  int run_main(detail::call_ref main, detail::main_result gives);

  detail::runtime_core* core_;
};

// Runs f in a runtime with these settings, and returns as runtime::run does: the usual
// entry point. Throws std::invalid_argument for settings out of range, and what
// runtime::run throws. Thread safety: any thread that runs no fiber; several may run at
// once. Lifetime: no fiber outlives it. Shutdown: see runtime::run. Cost: that of a
// runtime. Go: main and its goroutines.
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

// Returns the counters of the calling fiber's runtime. Throws wrong_place outside a
// fiber: runtime::stats() works on any thread. Thread safety: any fiber. Shutdown: works
// during it. Cost: a sum over the workers; nothing is stopped.
VIGIL_API runtime_stats stats();

}  // namespace VIGIL_PUBLIC
