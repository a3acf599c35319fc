// Virtual time for tests.
//
// run_virtual(f) runs f as the main fiber of a runtime with one worker, the calling
// thread, on a clock that stands still while anything can run and jumps to the next
// deadline when nothing else can happen. A test of a day's timeouts takes microseconds
// and gives the same result each time.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/fiber.hpp>
#include <vigil/runtime.hpp>
#include <vigil/ticker.hpp>
#include <vigil/time.hpp>
#include <vigil/timer.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC::testing {

// virtual_options: the seed and the settings of run_virtual. Throws nothing. Thread
// safety: a plain value.
struct virtual_options {
  // Decides which runnable fiber goes first, and the order among equal deadlines unless
  // options::equal_deadlines does. 0 means VIGIL_SEED from the environment if it is set,
  // otherwise 1. The seed is printed when f throws.
  std::uint64_t seed = 0;

  // All other settings; `workers` is ignored (there is one), and `deadlock` is fatal
  // unless it is set to warn.
  options runtime = {};
};

// epoch: the start of the virtual clock: 2000-01-01 00:00:00 UTC, in nanoseconds since
// 1970, as in Go's synctest.
inline constexpr clock::time_point epoch{std::chrono::seconds{946'684'800}};

namespace detail_virtual {
// Waits on a thread: throws wrong_place, deadlock, cancelled, std::system_error,
// std::invalid_argument, what f throws.
VIGIL_API void run_main(const virtual_options& options, detail::call_ref main);
VIGIL_API void move_clocks(const char* call, std::int64_t wall, std::int64_t boot);
}  // namespace detail_virtual

// Runs f on virtual time on the calling thread, and returns its result (0 if it returns
// nothing) or throws its exception. Throws what runtime::run throws; the seed is printed
// then. Thread safety: any thread that runs no fiber; several may run at once, each on
// its own clock. Lifetime: no fiber outlives it. Shutdown: as for runtime::run; grace and
// stop_limit are virtual. Cost: time that passes costs nothing. Go: synctest.Test.
template <class F>
auto run_virtual(const virtual_options& options, F&& f) {
  using R = std::invoke_result_t<F&>;
  if constexpr (std::is_void_v<R>) {
    detail_virtual::run_main(options, f);
    return 0;
  } else {
    std::optional<R> result;
    auto main = [&] { result.emplace(f()); };
    detail_virtual::run_main(options, main);
    return R(std::move(*result));
  }
}

template <class F>
auto run_virtual(F&& f) {
  return run_virtual(virtual_options{}, std::forward<F>(f));
}

// Parks the calling fiber until every other fiber is durably blocked: parked in a wait of
// the library, with nothing left to run at this instant. Due timers run first; the clock
// does not move. It also waits while outside work is announced. One caller at a time: a
// second one throws wrong_place, as does a call outside run_virtual. Thread safety: any
// fiber, one at a time. Shutdown: throws `stopped`. Cost: as much as the others still do.
// Go: synctest.Wait.
// Waits on a fiber: throws stopped, wrong_place.
VIGIL_API void settle();

// Steps the virtual wall clock (clocks.hpp) by d, back if d is negative. Timers on wall
// time follow before it returns; fibers that they make ready run later. Throws
// wrong_place outside run_virtual, and std::bad_alloc: the clock has been stepped then,
// but some timer may not have followed. Thread safety: any fiber of the run. Shutdown:
// works during it. Cost: a visit to each timer on wall or boot time.
template <vigil::detail::duration_argument D>
void step_wall(const D& d) {
  detail_virtual::move_clocks("testing::step_wall", vigil::detail::to_nanos(d), 0);
}

// Lets the machine sleep for d: boot time and wall time go on, vigil::clock does not.
// Otherwise as step_wall. Throws std::invalid_argument for a negative d, and what
// step_wall throws. Thread safety: that of step_wall. Shutdown: works during it. Cost:
// that of step_wall.
template <vigil::detail::duration_argument D>
void suspend_for(const D& d) {
  const std::int64_t length = vigil::detail::to_nanos(d);
  detail_virtual::move_clocks("testing::suspend_for", length, length);
}

}  // namespace VIGIL_PUBLIC::testing
