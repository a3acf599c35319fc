// after_func: many timers at once, chains, and busy programs.
#include "core/timer/timer_test.hpp"

#include <functional>

using namespace vigil::testing_support;

TEST_SUITE("after_func") {
  // Node, libuv: up to 1 ms early (libuv#4773).
  TEST_CASE("the earliest of timers armed in falling order runs first") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      constexpr int n = 1000;
      std::vector<int> order;
      for (int i = n; i > 0; --i) {
        after_func(std::chrono::microseconds(i), [&, i] {
          CHECK(since(start) == std::chrono::microseconds(i));
          order.push_back(i);
        });
      }
      sleep_for(1s);
      REQUIRE(order.size() == n);
      for (int i = 0; i < n; ++i)
        CHECK(order[static_cast<std::size_t>(i)] == i + 1);
    });
    // In real time the early ones may be due before the last is armed.
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::atomic<int> runs{0};
      std::atomic<bool> early{false};
      const auto start = vigil::clock::now();
      const int n = rounds(1000);
      for (int i = n; i > 0; --i) {
        const auto d = std::chrono::microseconds(i * 20);
        after_func(d, [&, d] {
          if (since(start) < d) early.store(true);
          runs.fetch_add(1);
        });
      }
      while (runs.load() != n)
        sleep_for(100us);
      CHECK_FALSE(early.load());
    });
  }

  // Node, libuv: chain of 1 ms timers.
  TEST_CASE("a chain in which each arms the next fires each a millisecond after the last") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      constexpr int n = 1000;
      int runs = 0;
      std::function<void()> step = [&] {
        ++runs;
        CHECK(since(start) == 1ms * runs);
        if (runs < n) after_func(1ms, [&] { step(); });
      };
      after_func(1ms, [&] { step(); });
      sleep_for(1ms * n - 1ns);
      CHECK(runs == n - 1);
      sleep_for(1h);
      CHECK(runs == n);
    });
  }

  // Go: TestZeroTimer.
  TEST_CASE("none of many zero timers is missed") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      repeat(rounds(100'000), [&](int) {
        std::atomic<bool> ran{false};
        after_func(0s, [&] { ran.store(true); });
        while (!ran.load())
          vigil::this_fiber::yield();
      });
      std::atomic<int> again{0};
      auto t = after_func(1h, [&] { again.fetch_add(1); });
      repeat(rounds(100'000), [&](int i) {
        t.reset(0s);
        while (again.load() != i + 1)
          vigil::this_fiber::yield();
      });
    });
  }

  // Go: TestAfterFuncStarvation. Node, libuv: recursive setImmediate lets others through;
  // recursive nextTick starves them.
  TEST_CASE("two fibers that yield for ever do not starve a timer on one worker") {
    in_runtime({.workers = {1}}, [] {
      for (int round = 0; round < rounds(1000); ++round) {
        std::atomic<bool> done{false};
        std::vector<vigil::fiber<>> pair;
        for (int i = 0; i < 2; ++i) {
          pair.push_back(vigil::spawn([&] {
            while (!done.load())
              vigil::this_fiber::yield();
          }));
        }
        after_func(1us, [&] { done.store(true); });
        for (auto& f : pair)
          f.join();
      }
    });
  }

  // Go: TestAfterFuncStarvation.
  TEST_CASE("two fibers that hand over to each other for ever do not starve a timer") {
    // Each fiber hands over by ending a join of the other: the hand-off slot, not the
    // queue, always holds a fiber.
    in_runtime({.workers = {1}}, [] {
      for (int round = 0; round < rounds(1000); ++round) {
        std::atomic<bool> done{false};
        after_func(1us, [&] { done.store(true); });
        while (!done.load())
          vigil::spawn([] {}).join();
      }
    });
  }
}
