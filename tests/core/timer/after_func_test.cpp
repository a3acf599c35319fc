#include "core/timer/timer_test.hpp"

#include <algorithm>
#include <functional>
#include <set>

using namespace vigil::testing_support;

TEST_SUITE("after_func") {
  // Go: Where f runs.
  TEST_CASE("runs the function once, at exactly its deadline, on a fiber of its own") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto main_id = vigil::this_fiber::id();
      int runs = 0;
      after_func(250ms, [&] {
        ++runs;
        CHECK(since(start) == 250ms);
        CHECK(vigil::this_fiber::id() != main_id);
        CHECK(vigil::this_fiber::name() != "timer fiber");
      });
      sleep_for(250ms - 1ns);
      CHECK(runs == 0);
      sleep_for(1h);
      CHECK(runs == 1);
    });
  }

  // Node, libuv: callback_stack.
  TEST_CASE("the function is never called from inside after_func") {
    in_virtual([] {
      bool ran = false;
      const auto t = after_func(0s, [&] { ran = true; });
      CHECK_FALSE(ran);
      vigil::this_fiber::yield();
      vigil::testing::settle();
      CHECK(ran);
    });
  }

  // Go: TestAfterFuncRunsImmediately.
  TEST_CASE("a zero delay runs while its creator only yields") {
    for_each_seed(10, [] {
      bool ran = false;
      after_func(0s, [&] { ran = true; });
      const auto start = vigil::clock::now();
      while (!ran)
        vigil::this_fiber::yield();
      CHECK(since(start) == 0s);
    });
  }

  // Go: AfterFunc(<= 0).
  TEST_CASE("a negative delay, however large, runs at once") {
    in_virtual([] {
      int runs = 0;
      after_func(-1ns, [&] { ++runs; });
      after_func(-1h, [&] { ++runs; });
      after_func(nanoseconds::min(), [&] { ++runs; });
      after_func(std::chrono::hours::min(), [&] { ++runs; });
      vigil::testing::settle();
      CHECK(runs == 4);
      CHECK(vigil::clock::now() == vigil::testing::epoch);
    });
  }

  // Go: TestOverflowSleep.
  TEST_CASE("a delay beyond the range of the clock never runs and disturbs no other") {
    in_virtual([] {
      bool never_ran = true;
      std::vector<vigil::timer> huge;
      huge.push_back(after_func(nanoseconds::max(), [&] { never_ran = false; }));
      huge.push_back(after_func(nanoseconds::max() - 1ns, [&] { never_ran = false; }));
      huge.push_back(after_func(std::chrono::hours::max(), [&] { never_ran = false; }));
      int runs = 0;
      after_func(25ms, [&] { ++runs; });
      sleep_for(25ms + 1ns);
      CHECK(runs == 1);
      sleep_for(std::chrono::hours(24 * 365 * 200));
      CHECK(never_ran);
      for (auto& t : huge)
        CHECK(t.stop());
    });
  }

  // Go: TestAfterFunc.
  TEST_CASE("a chain of callbacks does not wait for blocked ones") {
    const auto chain = [] {
      constexpr int links = 10;
      int left = links;
      std::atomic<bool> done{false};
      std::atomic<int> blocked_ended{0};
      std::function<void()> next = [&] {
        if (left-- == 0) {
          done.store(true);
          return;
        }
        after_func(0s, next);
        while (!done.load())  // until the last one has run
          sleep_for(1ms);
        ++blocked_ended;
      };
      after_func(0s, next);
      while (blocked_ended.load() < links)
        sleep_for(1ms);
    };
    for_each_seed(10, chain);
    in_runtime({.workers = {1, 2}}, chain);
  }

  // Node, libuv: one long callback delays all (libuv#502).
  TEST_CASE("one slow callback delays none of the others") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      after_func(10ms, [] { sleep_for(1h); });
      for (int i = 1; i <= 100; ++i) {
        after_func(i * 10ms, [&at, start] { at.push_back(since(start)); });
      }
      sleep_for(2s);
      REQUIRE(at.size() == 100);
      for (int i = 1; i <= 100; ++i)
        CHECK(at[static_cast<std::size_t>(i) - 1] == i * 10ms);
      sleep_for(2h);
    });
  }

  // Go: TestAfterQueuing; Order of different deadlines.
  TEST_CASE("callbacks run in the order of their deadlines, each at its own") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      std::vector<int> order;
      for (const int slot : {5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0}) {
        after_func(slot * 20ms, [&order, start, slot] {
          CHECK(since(start) == slot * 20ms);
          order.push_back(slot);
        });
      }
      sleep_for(1s);
      CHECK(order.size() == 13);
      CHECK(std::is_sorted(order.begin(), order.end()));
    });
  }

  // Go: TestTimerNondeterminism, TestSleepNondeterminism.
  TEST_CASE("equal deadlines run in either order and the seed decides which") {
    std::set<std::vector<int>> orders;
    for_each_seed(60, [&] {
      std::vector<int> order;
      for (int i = 0; i < 3; ++i)
        after_func(1s, [&order, i] { order.push_back(i); });
      sleep_for(2s);
      orders.insert(order);
    });
    CHECK(orders.size() == 6);
  }

  // Go: TestTimeAfter.
  TEST_CASE("a fiber or timer that a callback starts belongs to the same runtime and clock") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      bool done = false;
      after_func(1s, [&] {
        CHECK(since(start) == 1s);
        vigil::go([&] {
          sleep_for(1s);
          after_func(1s, [&] {
            CHECK(since(start) == 3s);
            done = true;
          });
        });
      });
      sleep_for(3s + 1ns);
      CHECK(done);
    });
  }

  // Go: TestTimerAfterBubbleExit.
  TEST_CASE("a pending callback never runs once the main fiber has returned") {
    bool ran = false;
    in_virtual([&] { after_func(1s, [&] { ran = true; }); });
    in_runtime({.workers = {1}}, [&] { after_func(1ms, [&] { ran = true; }); });
    // With a second worker it might be due before the main fiber returns.
    in_runtime({.workers = {2}}, [&] { after_func(1h, [&] { ran = true; }); });
    CHECK_FALSE(ran);
  }

  // Go: Unreferenced pending timer.
  TEST_CASE("a dropped handle lets the timer run") {
    in_virtual([] {
      int runs = 0;
      for (int i = 0; i < 10; ++i)
        static_cast<void>(after_func(1s, [&] { ++runs; }));
      sleep_for(2s);
      CHECK(runs == 10);
    });
  }

  // Node, libuv: arguments of every kind.
  TEST_CASE("callables of every kind are called: large, move-only, pointers, members") {
    in_virtual([] {
      static int plain_runs = 0;
      struct plain {
        static void run() { ++plain_runs; }
      };
      int runs = 0;
      after_func(1s, &plain::run);
      after_func(1s, [&runs, p = std::make_unique<int>(3)] { runs += *p; });
      struct {
        char room[500] = {};
      } large;
      large.room[499] = 4;
      after_func(1s, [&runs, large] { runs += large.room[499]; });
      after_func(1s, std::function<void()>([&runs] { runs += 5; }));
      after_func(1s, [&runs]() -> int { return runs += 6; });
      sleep_for(2s);
      CHECK(plain_runs == 1);
      CHECK(runs == 18);
    });
  }

  // Node, libuv: timer_null_callback.
  TEST_CASE("an empty function is refused at the call and arms nothing") {
    in_virtual([] {
      void (*none)() = nullptr;
      const char* const text = "vigil::after_func: the function is empty (null)";
      CHECK_THROWS_WITH_AS(after_func(1s, none), text, std::invalid_argument);
      CHECK_THROWS_WITH_AS(after_func(1s, std::function<void()>()), text, std::invalid_argument);
      CHECK_THROWS_WITH_AS(vigil::every(1s, none),
                           "vigil::every: the function is empty (null)",
                           std::invalid_argument);
      CHECK(vigil::stats().timers_armed == 0);
    });
  }

  // Node, libuv: negative, NaN, huge.
  TEST_CASE("a duration that is not a number is refused and arms nothing") {
    in_virtual([] {
      const std::chrono::duration<double> nan(std::numeric_limits<double>::quiet_NaN());
      CHECK_THROWS_AS(after_func(nan, [] {}), std::invalid_argument);
      CHECK(vigil::stats().timers_armed == 0);
      auto kept = std::make_shared<int>(5);
      auto f = [kept] {};
      CHECK_THROWS_AS(after_func(nan, std::move(f)), std::invalid_argument);
      CHECK_THROWS_AS(vigil::every(nan, std::move(f)), std::invalid_argument);
      CHECK_THROWS_AS(vigil::every(nan, std::move(f), vigil::from_end), std::invalid_argument);
      CHECK_THROWS_AS(vigil::timeout_list(nan, [kept](auto&) {}), std::invalid_argument);
      CHECK(kept.use_count() == 2);
    });
  }

  TEST_CASE("a duration that is not a number is refused although it does not matter") {
    in_virtual([] {
      const std::chrono::duration<double> nan(std::numeric_limits<double>::quiet_NaN());
      const std::chrono::time_point<vigil::clock, std::chrono::duration<double>> never(nan);
      vigil::timer none;
      CHECK_THROWS_AS(none.set_slack(nan), std::invalid_argument);
      vigil::mutex free_mutex;
      CHECK_THROWS_AS(static_cast<void>(free_mutex.try_lock_for(nan)), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(free_mutex.try_lock_until(never)), std::invalid_argument);
      vigil::shared_mutex shared;
      CHECK_THROWS_AS(static_cast<void>(shared.try_lock_for(nan)), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(shared.try_lock_until(never)), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(shared.try_lock_shared_for(nan)), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(shared.try_lock_shared_until(never)),
                      std::invalid_argument);
    });
  }

  TEST_CASE("a thread without a runtime is referred to runtime::after_func") {
    try {
      after_func(1s, [] {});
      FAIL("after_func outside a runtime did not throw");
    } catch (const vigil::wrong_place& e) {
      CHECK(std::string(e.what()).find("runtime::after_func") != std::string::npos);
    }
  }

  TEST_CASE("plain threads arm stop and reset timers through runtime::after_func") {
    in_runtime({.workers = {1, 2, 4}}, [](vigil::runtime& rt) {
      std::atomic<int> runs{0};
      const int each = rounds(2000);
      std::vector<std::thread> threads;
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
          for (int round = 0; round < each; ++round) {
            auto stopped = rt.after_func(1h, [&] { runs.fetch_add(1000); });
            auto runs_soon = rt.after_func(1h, [&] { runs.fetch_add(1); });
            if (!runs_soon.reset(nanoseconds(round % 7 * 1000))) runs.fetch_add(1'000'000);
            if (!stopped.stop()) runs.fetch_add(1'000'000);
          }
        });
      }
      while (runs.load() < 3 * each)
        sleep_for(1ms);
      for (auto& t : threads)
        t.join();
      sleep_for(1ms);
      CHECK(runs.load() == 3 * each);
    });
  }

  TEST_CASE("a timer armed before run begins is served by it") {
    vigil::options two;
    two.workers = 2;
    vigil::runtime rt(two);
    std::atomic<int> runs{0};
    rt.after_func(0s, [&] { runs.fetch_add(1); });
    rt.after_func(1ms, [&] { runs.fetch_add(1); });
    rt.run([&] {
      while (runs.load() != 2)
        sleep_for(1ms);
    });
    CHECK(rt.stats().timers_pending == 0);
  }

  TEST_CASE("an exception that leaves a callback goes to on_unhandled and others go on") {
    static std::atomic<int> seen{0};
    seen.store(0);
    vigil::testing::virtual_options how;
    how.runtime.on_unhandled = [](std::exception_ptr error) {
      try {
        std::rethrow_exception(error);
      } catch (const std::runtime_error& e) {
        if (std::string(e.what()) == "planted") seen.fetch_add(1);
      }
    };
    in_virtual(how, [] {
      int runs = 0;
      after_func(1s, [] { throw std::runtime_error("planted"); });
      after_func(1s, [&] { ++runs; });
      after_func(2s, [&] { ++runs; });
      sleep_for(3s);
      CHECK(runs == 2);
    });
    CHECK(seen.load() == 1);
  }
}
