// The thread of the main fiber: it begins on the thread that called run, and stays there
// only if it is pinned.
#include "core/runtime/with_workers.hpp"
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

namespace {

using namespace std::chrono_literals;
using vigil::testing_support::with_workers;

// Never inlined: compilers keep the answer across a switch.
[[gnu::noinline]] std::thread::id this_thread() {
  asm volatile("");
  return std::this_thread::get_id();
}

// Main goes on on another thread, of two: while it waits, a fiber computes on its own,
// and until that has begun the other worker computes as well.
void move() {
  const auto before = this_thread();
  std::atomic<bool> other_computes{false};
  std::atomic<bool> own_computes{false};
  std::atomic<bool> goes_on{false};
  auto other = vigil::spawn([&] {
    other_computes = true;
    while (!own_computes.load())
      asm volatile("");
  });
  while (!other_computes.load())  // main does not switch, so the other worker takes it
    asm volatile("");
  const auto come = vigil::make_channel<int>(1);
  auto own = vigil::spawn([&] {
    own_computes = true;
    come.send(1);
    while (!goes_on.load())
      asm volatile("");
  });
  come.recv();
  goes_on = true;
  REQUIRE(this_thread() != before);
  own.join();
  other.join();
}

// Main waits many times beside fibers that compute for a moment.
bool stays() {
  const auto before = this_thread();
  for (int i = 0; i < 50; ++i) {
    auto computes = vigil::spawn([] {
      for (int spins = 0; spins < 100'000; ++spins)
        asm volatile("");
    });
    vigil::sleep_for(10us);
    computes.join();
    if (this_thread() != before) return false;
  }
  return true;
}

TEST_SUITE("the main fiber's thread") {
  TEST_CASE("code before the first wait runs on the thread that called run") {
    const auto caller = this_thread();
    vigil::runtime rt(with_workers(8));
    for (int i = 0; i < vigil::testing_support::rounds(10'000); ++i) {
      const bool is_caller = rt.run([&] {
        vigil::go([] {});  // wakes the others
        return this_thread() == caller;
      });
      REQUIRE(is_caller);
    }
  }

  TEST_CASE("after a wait it may go on on another worker") {
    vigil::run(with_workers(2), [] { move(); });
  }

  TEST_CASE("with pin_main, or a pin on its first line, it stays") {
    auto o = with_workers(2);
    o.pin_main = true;
    vigil::run(o, [] { CHECK(stays()); });
    vigil::run(with_workers(2), [] {
      const vigil::this_fiber::pin here;
      CHECK(stays());
    });
  }

  TEST_CASE("its result and its exception come back to the thread that called run") {
    const auto caller = this_thread();
    const auto returns = [] {
      move();
      return 7;
    };
    CHECK(vigil::run(with_workers(2), returns) == 7);
    CHECK(this_thread() == caller);
    const auto fails = [] {
      move();
      throw std::runtime_error("elsewhere");
    };
    CHECK_THROWS_WITH_AS(vigil::run(with_workers(2), fails), "elsewhere", std::runtime_error);
    CHECK(this_thread() == caller);
  }
}

}  // namespace
