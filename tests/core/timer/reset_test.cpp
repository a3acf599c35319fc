// timer::reset: where a timer goes, and which of stop, reset and the run wins.
#include "core/timer/timer_test.hpp"

#include <stdexcept>

using namespace vigil::testing_support;

TEST_SUITE("timer reset") {
  // Go: TestReset; Reset result; of a stopped one.
  TEST_CASE("moves a pending timer later and is true; is false for one that has run") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      timer t = after_func(20ms, [&] { at.push_back(since(start)); });
      sleep_for(10ms);
      CHECK(t.reset(30ms));
      sleep_for(20ms);
      CHECK(at.empty());
      sleep_for(20ms);
      CHECK(at == std::vector<nanoseconds>{40ms});
      CHECK_FALSE(t.reset(50ms));
      sleep_for(1s);
      CHECK(at == std::vector<nanoseconds>{40ms, 100ms});
    });
  }

  // Node, libuv: timer_start_twice.
  TEST_CASE("moves a pending timer earlier") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      timer t = after_func(24h, [&] { at.push_back(since(start)); });
      CHECK(t.reset(10ms));
      sleep_for(48h);
      CHECK(at == std::vector<nanoseconds>{10ms});
    });
  }

  // Go: TestTimerReset.
  TEST_CASE("a chain of resets runs at each deadline in turn") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      timer t = after_func(1s, [&] { at.push_back(since(start)); });
      sleep_for(1s + 1ns);
      CHECK_FALSE(t.reset(2s - 1ns));
      sleep_for(2s);
      CHECK_FALSE(t.reset(4s - 1ns));
      sleep_for(4s);
      CHECK(at == std::vector<nanoseconds>{1s, 3s, 7s});
    });
  }

  TEST_CASE("back and forth only the last deadline is in force") {
    for_each_seed(20, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      timer t = after_func(1h, [&] { at.push_back(since(start)); });
      nanoseconds last{};
      for (int i = 0; i < 1000; ++i) {
        last = std::chrono::milliseconds(1 + dice.below(1000));
        CHECK(t.reset(last));
      }
      sleep_for(2h);
      CHECK(at == std::vector<nanoseconds>{last});
    });
  }

  TEST_CASE("a later deadline files nothing in the heap") {
    in_virtual([] {
      timer t = after_func(1s, [] {});
      const auto before = vigil::stats().heap_entries;
      for (int i = 1; i <= 1000; ++i)
        t.reset(1s + i * 1ms);
      CHECK(vigil::stats().heap_entries == before);
      CHECK(vigil::stats().timers_pending == 1);
      CHECK(vigil::stats().timers_reset == 1000);
      t.stop();
    });
  }

  // Node, libuv: again keeps a repeat from firing (timer_again).
  TEST_CASE("resets that come in time keep a timer from ever running") {
    // A reset every 50 ms keeps a 100 ms timer from running.
    in_virtual([] {
      int runs = 0;
      timer t = after_func(100ms, [&] { ++runs; });
      for (int i = 0; i < 100; ++i) {
        sleep_for(50ms);
        CHECK(t.reset(100ms));
      }
      CHECK(runs == 0);
      sleep_for(100ms + 1ns);
      CHECK(runs == 1);
    });
  }

  // Go: Reset result; of a stopped one.
  TEST_CASE("revives a stopped timer and is false") {
    in_virtual([] {
      int runs = 0;
      timer t = after_func(1s, [&] { ++runs; });
      CHECK(t.stop());
      CHECK_FALSE(t.reset(1s));
      sleep_for(2s);
      CHECK(runs == 1);
    });
  }

  // Go: Reset to zero, negative, past.
  TEST_CASE("to zero, to a negative duration and to a past point runs at once") {
    in_virtual([] {
      int runs = 0;
      timer t = after_func(1h, [&] { ++runs; });
      CHECK(t.reset(0s));
      vigil::testing::settle();
      CHECK(runs == 1);
      CHECK_FALSE(t.reset(-1h));
      vigil::testing::settle();
      CHECK(runs == 2);
      CHECK_FALSE(t.reset(vigil::clock::now() - 1s));
      vigil::testing::settle();
      CHECK(runs == 3);
      CHECK_FALSE(t.reset(vigil::clock::time_point::min()));
      vigil::testing::settle();
      CHECK(runs == 4);
      CHECK(vigil::clock::now() == vigil::testing::epoch);
    });
  }

  TEST_CASE("to a time point is exact and to the maximum is never") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      timer t = after_func(1s, [&] { at.push_back(since(start)); });
      CHECK(t.reset(start + 5s));
      CHECK(t.deadline() == start + 5s);
      sleep_for(6s);
      CHECK(at == std::vector<nanoseconds>{5s});
      t.reset(nanoseconds::max());
      sleep_for(std::chrono::hours(24 * 365));
      CHECK(at.size() == 1);
      CHECK(t.stop());
    });
  }

  TEST_CASE("twice to zero before the callback starts runs it once") {
    in_virtual([] {
      int runs = 0;
      timer t = after_func(0s, [&] { ++runs; });
      CHECK(t.reset(0s));
      CHECK(t.reset(0s));
      vigil::testing::settle();
      CHECK(runs == 1);
    });
  }

  TEST_CASE("moves a due callback that has not started") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      timer t = after_func(0s, [&] { at.push_back(since(start)); });
      CHECK(t.reset(1s));
      sleep_for(5s);
      CHECK(at == std::vector<nanoseconds>{1s});
    });
  }

  // Go: Reset and Stop inside the callback.
  TEST_CASE("inside the callback re-arms and is false") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      auto t = std::make_shared<timer>();
      *t = after_func(1s, [&, t] {
        at.push_back(since(start));
        if (at.size() < 5) CHECK_FALSE(t->reset(1s));
      });
      sleep_for(10s);
      CHECK(at == std::vector<nanoseconds>{1s, 2s, 3s, 4s, 5s});
      *t = timer();
    });
  }

  // Go: Two runs at once.
  TEST_CASE("inside the callback lets two runs overlap, as in Go") {
    in_virtual([] {
      int inside = 0;
      int most = 0;
      int runs = 0;
      timer t;
      t = after_func(1s, [&] {
        most = std::max(most, ++inside);
        if (++runs == 1) t.reset(1s);
        sleep_for(5s);
        --inside;
      });
      sleep_for(20s);
      CHECK(runs == 2);
      CHECK(most == 2);
    });
  }

  // Go: TestZeroTimerResetPanics, -StopPanics; Zero-value timer. Node, libuv:
  // again on a timer never started.
  TEST_CASE("an empty handle refuses") {
    in_virtual([] {
      timer none;
      CHECK_THROWS_AS(none.reset(1s), std::logic_error);
      CHECK_THROWS_AS(none.reset(vigil::clock::now()), std::logic_error);
      timer t = after_func(1s, [] {});
      timer moved = std::move(t);
      CHECK_THROWS_AS(t.reset(1s), std::logic_error);  // NOLINT(bugprone-use-after-move)
      CHECK(moved.stop());
    });
  }

  // Go: Concurrent Reset and Stop.
  TEST_CASE("of concurrent resets the last to return decides") {
    in_runtime({.workers = {2}}, [] {
      for (int round = 0; round < rounds(200); ++round) {
        std::atomic<int> runs{0};
        timer t = after_func(1h, [&] { runs.fetch_add(1); });
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
          threads.emplace_back([&, i] {
            for (int n = 0; n < 20; ++n)
              t.reset(std::chrono::minutes(i + n + 1));
          });
        }
        for (auto& thread : threads)
          thread.join();
        CHECK(t.reset(1h));
        CHECK(t.remaining() > 59min);
        CHECK(runs.load() == 0);
        CHECK(t.reset(0s));
        while (runs.load() == 0)
          vigil::this_fiber::yield();
        CHECK_FALSE(t.stop());
        CHECK(runs.load() == 1);
      }
    });
  }

  // Go: TestStopResult, TestResetResult.
  TEST_CASE("exactly one of stop, reset and the run takes each arming") {
    // armings == prevented + runs.
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 8; ++i) {
        fibers.push_back(vigil::spawn([i] {
          seeded dice(static_cast<std::uint64_t>(i) + 1);
          std::atomic<long> runs{0};
          long armings = 1;
          long prevented = 0;
          timer t = after_func(10us, [&] { runs.fetch_add(1); });
          for (int round = 0; round < rounds(4000); ++round) {
            switch (dice.below(4)) {
              case 0:
                prevented += t.stop() ? 1 : 0;
                break;
              case 1:
                prevented += t.reset(nanoseconds(dice.below(20'000))) ? 1 : 0;
                ++armings;
                break;
              case 2:
                prevented += t.reset(0s) ? 1 : 0;
                ++armings;
                break;
              default:
                if (dice.below(8) == 0) {
                  sleep_for(nanoseconds(dice.below(30'000)));
                } else {
                  vigil::this_fiber::yield();
                }
            }
          }
          prevented += t.stop_and_wait() ? 1 : 0;
          // A run that began before the stop has counted itself, and the stop has not
          // counted it.
          CHECK(armings == prevented + runs.load());
        }));
      }
      for (auto& f : fibers)
        f.join();
    });
  }

  // Go: TestStopResult, TestResetResult.
  TEST_CASE("stop and reset from threads and fibers at once lose and double no run") {
    in_runtime({.workers = {2}}, [] {
      std::atomic<long> runs{0};
      std::atomic<long> armings{1};
      std::atomic<long> prevented{0};
      timer t = after_func(1us, [&] { runs.fetch_add(1); });
      const auto hammer = [&](std::uint64_t seed) {
        seeded dice(seed);
        for (int round = 0; round < rounds(5000); ++round) {
          if (dice.below(3) == 0) {
            prevented.fetch_add(t.stop() ? 1 : 0);
          } else {
            prevented.fetch_add(t.reset(nanoseconds(dice.below(3000))) ? 1 : 0);
            armings.fetch_add(1);
          }
        }
      };
      std::thread one([&] { hammer(1); });
      std::thread two([&] { hammer(2); });
      auto three = vigil::spawn([&] { hammer(3); });
      three.join();
      one.join();
      two.join();
      prevented.fetch_add(t.stop_and_wait() ? 1 : 0);
      CHECK(armings.load() == prevented.load() + runs.load());
    });
  }
}
