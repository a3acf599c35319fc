// Includes, names and helpers that the tests of sleeps, timers and tickers share.
#pragma once

#include "support/in_runtime.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::nanoseconds;
using vigil::after;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::sleep_for;
using vigil::sleep_until;
using vigil::ticker;
using vigil::timer;
using vigil::timer_receiver;
using vigil::testing::settle;

using instant = clock::time_point;

inline constexpr instant no_deadline = instant::max();

// Calls body(handle, is_a_ticker) for both kinds, far from due, under a few seeds.
template <class F>
void for_timer_and_ticker(F body) {
  for_each_seed(10, [&] { body(timer(std::chrono::seconds(10'000)), false); });
  for_each_seed(10, [&] { body(ticker(std::chrono::seconds(10'000)), true); });
}

// The timers that are in the heap and will fire, including the waits of fibers.
inline std::uint64_t pending() {
  return stats().timers_pending;
}

// A fiber that receives once, and the value it got.
struct waiting {
  explicit waiting(timer_receiver from)
      : fiber(spawn([this, c = std::move(from)] {
          value = c.recv().value_or(instant::min());
          at = clock::now();
          is_done = true;
        })) {}

  // Leaves; from now on it must not be served.
  void leave() {
    CHECK_FALSE(is_done);
    fiber.request_stop();
    CHECK_THROWS_AS(fiber.join(), cancelled);
  }

  instant value{};
  instant at{};
  bool is_done = false;
  vigil::fiber<> fiber;
};

}  // namespace vigil::testing_support
