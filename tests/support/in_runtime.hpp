// Runs the body of a test as the main fiber of a runtime, and checks afterwards that
// nothing was left behind.
//
//   in_virtual(body)          virtual time, seed 1: exact times
//   for_each_seed(n, body)    virtual time under the seeds 1 to n; if VIGIL_SEED=m
//                             is in the environment, under m alone
//   in_runtime(how, body)     real time, once for each number of workers
//
// A failed REQUIRE in any fiber or callback is rethrown on the test's thread. SUBCASE,
// INFO and CAPTURE belong on the test's thread, outside the body: doctest keeps them in
// thread-locals, and fibers migrate.
#pragma once

#include "core/base/random.hpp"
#include "core/machine/stack.hpp"
#include "core/runtime/runtime_core.hpp"
#include "support/note.hpp"
#include "support/running_seed.hpp"

#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

// A sanitizer needs the whole address space.
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VIGIL_TEST_UNDER_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VIGIL_TEST_UNDER_SANITIZER
#endif

namespace vigil::testing_support {

// A generator that replays from one number.
using seeded = detail::random;

// Under VIGIL_SHORT, which ./dev sets for the sanitizers.
inline bool is_short_form() {
  static const bool is_short = std::getenv("VIGIL_SHORT") != nullptr;
  return is_short;
}

// In the short form loops have a twentieth of the rounds.
inline int rounds(int full) {
  return is_short_form() && full >= 20 ? full / 20 : full;
}

// Calls body(i) that many times, and stops after two seconds: beside other programs each
// round of several threads may wait for a processor.
template <class F>
void repeat(int most, F body) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (int i = 0; i < most && std::chrono::steady_clock::now() < end; ++i)
    body(i);
}

// In leak_gate.cpp, if it is linked.
[[gnu::weak]] void look_for_leaks();

inline void end_of_body() {
  if (&look_for_leaks != nullptr) look_for_leaks();
}

// The first exception that left a `go` fiber or a callback.
class kept_failure {
 public:
  static void keep(std::exception_ptr error) {
    const std::lock_guard guard(lock());
    if (slot() == nullptr) slot() = std::move(error);
  }

  static std::exception_ptr take() {
    const std::lock_guard guard(lock());
    return std::exchange(slot(), nullptr);
  }

 private:
  static std::mutex& lock() {
    static std::mutex m;
    return m;
  }

  static std::exception_ptr& slot() {
    static std::exception_ptr error;
    return error;
  }
};

struct real_options {
  std::vector<unsigned> workers = {1, 2, 4};
  options settings = {};
};

inline void check_nothing_left(const runtime_stats& s, std::size_t stacks_before) {
  CHECK(s.fibers_alive == 0);
  CHECK(s.fibers_sleeping == 0);
  CHECK(s.timers_pending == 0);
  CHECK(s.heap_entries == s.dead_entries);
  CHECK(detail::read_stack_stats().in_use == stacks_before);
  if (const std::exception_ptr error = kept_failure::take()) std::rethrow_exception(error);
}

// Calls body() or body(runtime&).
template <class F>
void in_runtime(const real_options& setup, F body) {
  for (const unsigned workers : setup.workers) {
    NOTE("workers: ", workers);
    const std::size_t stacks = detail::read_stack_stats().in_use;
    options o = setup.settings;
    o.workers = workers;
    if (o.on_unhandled == nullptr) o.on_unhandled = &kept_failure::keep;
    runtime rt(o);
    rt.run([&] {
      if constexpr (std::is_invocable_v<F&, runtime&>) {
        body(rt);
      } else {
        body();
      }
      end_of_body();
    });
    check_nothing_left(rt.stats(), stacks);
  }
}

// Like testing::run_virtual, which has tests of its own; here the statistics stay
// available for checks.
template <class F>
void in_virtual(const testing::virtual_options& setup, F body) {
  NOTE("seed: ", setup.seed, " (VIGIL_SEED)");
  const std::size_t stacks = detail::read_stack_stats().in_use;
  detail::scheduler_options o = detail::checked(setup.runtime);
  o.workers = 1;
  o.virtual_time = true;
  o.seed = setup.seed == 0 ? 1 : setup.seed;
  if (o.on_unhandled == nullptr) o.on_unhandled = &kept_failure::keep;
  detail::runtime_core core(o);
  auto main = [&body] {
    body();
    end_of_body();
  };
  core.sched.run(main);
  runtime_stats after;
  core.sched.add_stats(after);
  check_nothing_left(after, stacks);
}

template <class F>
void in_virtual(F body) {
  in_virtual(testing::virtual_options{}, std::move(body));
}

// Calls body() or body(seed).
template <class F>
void for_each_seed(std::uint64_t seeds, F body) {
  const char* const given = std::getenv("VIGIL_SEED");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 0) : 1;
  const std::uint64_t many = given != nullptr ? 1 : seeds;
  for (std::uint64_t seed = first; seed - first < many; ++seed) {
    const named_seed named(seed);
    in_virtual({.seed = seed, .runtime = {}}, [&] {
      if constexpr (std::is_invocable_v<F&, std::uint64_t>) {
        body(seed);
      } else {
        body();
      }
    });
  }
}

// The time since `start`, on the clock of the calling fiber's runtime.
inline std::chrono::nanoseconds since(clock::time_point start) {
  return clock::now() - start;
}

}  // namespace vigil::testing_support
