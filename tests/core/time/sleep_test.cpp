#include "core/time/time_test.hpp"
#include "support/at_rest.hpp"

#include <algorithm>
#include <csignal>
#include <limits>
#include <set>
#include <thread>

#include <pthread.h>
#include <unistd.h>

using namespace vigil::testing_support;

TEST_SUITE("sleep") {
  // Go: TestAfter, TestAfterTick.
  TEST_CASE("a sleep ends at exactly its deadline in virtual time") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(start == vigil::testing::epoch);
      sleep_for(1ns);
      CHECK(since(start) == 1ns);
      sleep_for(100ms);
      CHECK(since(start) == 100ms + 1ns);
      sleep_for(24h);
      CHECK(since(start) == 24h + 100ms + 1ns);
    });
  }

  TEST_CASE("a shorter sleep started later ends first") {
    for_each_seed(20, [] {
      std::vector<nanoseconds> order;
      for (const nanoseconds nap : {20ms, 10ms}) {
        vigil::go([&order, nap] {
          sleep_for(nap);
          order.push_back(nap);
        });
      }
      sleep_for(30ms);
      CHECK(order == std::vector<nanoseconds>{10ms, 20ms});
    });
  }

  // Go: TestAfterQueuing.
  TEST_CASE("sleepers end in the order of their deadlines, each at its own") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      std::vector<int> order;
      for (const int slot : {5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0}) {
        vigil::go([&order, start, slot] {
          sleep_until(start + slot * 20ms);
          CHECK(since(start) == slot * 20ms);
          order.push_back(slot);
        });
      }
      sleep_for(1s);
      CHECK(order.size() == 13);
      CHECK(std::is_sorted(order.begin(), order.end()));
    });
  }

  // Node, libuv: durations that are not whole ms.
  TEST_CASE("a thousand sleepers at random deadlines each end at exactly theirs") {
    for_each_seed(5, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto start = vigil::clock::now();
      int ended = 0;
      for (int i = 0; i < 1000; ++i) {
        vigil::go([&ended, start, nap = nanoseconds(dice.below(1'000'000))] {
          for (int round = 1; round <= 5; ++round) {
            sleep_for(nap);
            REQUIRE(since(start) == nap * round);
          }
          ++ended;
        });
      }
      sleep_for(1s);
      CHECK(ended == 1000);
    });
  }

  // Go: TestTimerNondeterminism, TestSleepNondeterminism.
  TEST_CASE("equal deadlines end in either order and the seed decides which") {
    std::set<std::vector<int>> orders;
    for_each_seed(60, [&] {
      std::vector<int> order;
      const auto deadline = vigil::clock::now() + 1s;
      for (int i = 0; i < 3; ++i) {
        vigil::go([&order, deadline, i] {
          sleep_until(deadline);
          order.push_back(i);
        });
      }
      sleep_for(2s);
      orders.insert(order);
    });
    CHECK(orders.size() == 6);
  }

  // Go: Sleep(<= 0).
  TEST_CASE("a zero or negative sleep returns at once and does not give up the worker") {
    in_virtual([] {
      bool other_ran = false;
      vigil::go([&] { other_ran = true; });
      const auto start = vigil::clock::now();
      const auto switches = vigil::stats().switches;
      sleep_for(0s);
      sleep_for(-1ns);
      sleep_for(nanoseconds::min());
      sleep_for(std::chrono::hours::min());
      sleep_until(start);
      sleep_until(start - 1h);
      sleep_until(vigil::clock::time_point::min());
      CHECK(vigil::stats().switches == switches);
      CHECK(since(start) == 0s);
      CHECK_FALSE(other_ran);
    });
  }

  // Go: TestSleepZeroDeadlock.
  TEST_CASE("zero sleeps between yields always come to an end") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<int> ended{0};
      for (int i = 0; i < 10; ++i) {
        vigil::go([&] {
          for (int round = 0; round < 100; ++round) {
            sleep_for(0s);
            vigil::this_fiber::yield();
          }
          ended.fetch_add(1);
        });
      }
      while (ended.load() != 10)
        vigil::this_fiber::yield();
    });
  }

  // Go: TestOverflowSleep. Node, libuv: ^31 ms of uptime (node#22149), 2^32, 2^53.
  TEST_CASE("a sleep beyond the range of the clock never ends and disturbs no other") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<vigil::fiber<>> sleepers;
      sleepers.push_back(vigil::spawn([] { sleep_for(nanoseconds::max()); }));
      sleepers.push_back(vigil::spawn([] { sleep_for(nanoseconds::max() - 1ns); }));
      sleepers.push_back(vigil::spawn([] { sleep_for(std::chrono::hours::max()); }));
      sleepers.push_back(vigil::spawn([] { sleep_until(vigil::clock::time_point::max()); }));
      sleepers.push_back(
          vigil::spawn([] { sleep_until(std::chrono::steady_clock::time_point::max()); }));
      sleepers.push_back(vigil::spawn([] {
        sleep_for(std::chrono::duration<double>(std::numeric_limits<double>::infinity()));
      }));
      sleep_for(25ms);
      CHECK(since(start) == 25ms);
      sleep_for(std::chrono::hours(24 * 365 * 100));  // a century later they still sleep
      CHECK(vigil::stats().fibers_sleeping == sleepers.size());
      for (auto& f : sleepers)
        f.request_stop();
      for (auto& f : sleepers)
        CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("the last deadline before the end of the clock is waited for") {
    in_virtual([] {
      constexpr auto last = vigil::clock::time_point::max() - 1us;
      sleep_until(last);
      CHECK(vigil::clock::now() == last);
      // A later deadline saturates and the sleep never ends.
      auto f = vigil::spawn([] { sleep_for(1h); });
      CHECK_FALSE(f.join_for(1ns));
    });
  }

  TEST_CASE("a duration that is not a number is refused") {
    in_virtual([] {
      const std::chrono::duration<double> nan(std::numeric_limits<double>::quiet_NaN());
      CHECK_THROWS_AS(sleep_for(nan), std::invalid_argument);
    });
  }

  // Go: At least d, without tolerance.
  TEST_CASE("a fraction of a nanosecond is rounded up, never down") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      sleep_for(std::chrono::duration<double, std::nano>(0.25));
      CHECK(since(start) == 1ns);
      sleep_for(std::chrono::duration<std::int64_t, std::pico>(1001));
      CHECK(since(start) == 3ns);
      sleep_for(std::chrono::duration<double>(0.5));
      CHECK(since(start) == 500ms + 3ns);
    });
  }

  // Node v10 stopped all timers after 2^31 ms of uptime.
  // Node, libuv: ^31 ms of uptime (node#22149), 2^32, 2^53.
  TEST_CASE("sleeps cross 2^31 and 2^32 milliseconds of run time exactly") {
    in_virtual([] {
      for (const std::int64_t edge : {std::int64_t{1} << 31, std::int64_t{1} << 32}) {
        const auto target = vigil::testing::epoch + std::chrono::milliseconds(edge);
        sleep_until(target - 1ms);
        for (int i = 0; i < 3; ++i)
          sleep_for(1ms);
        CHECK(vigil::clock::now() == target + 2ms);
      }
    });
  }

  // Go: Wall clock steps; points of other clocks.
  TEST_CASE("points of other clocks are converted by their distance from now") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      sleep_until(std::chrono::steady_clock::now() + 1h);
      CHECK(since(start) > 59min);
      CHECK(since(start) <= 1h);
      const auto middle = vigil::clock::now();
      sleep_until(std::chrono::system_clock::now() + 1h);
      CHECK(since(middle) > 59min);
      CHECK(since(middle) <= 1h);
      sleep_until(std::chrono::system_clock::now() - 1h);
      CHECK(since(middle) <= 1h);
    });
  }

  TEST_CASE("a sleep outside a fiber throws an error that gives the alternative") {
    CHECK_THROWS_AS(sleep_for(1ms), vigil::wrong_place);
    CHECK_THROWS_AS(sleep_for(0ms), vigil::wrong_place);
    CHECK_THROWS_AS(sleep_until(vigil::clock::now()), vigil::wrong_place);
    try {
      sleep_for(1ms);
    } catch (const vigil::wrong_place& e) {
      CHECK(std::string_view(e.what()).find("sleep_for") != std::string_view::npos);
    }
  }

  TEST_CASE("request_stop ends a sleep and leaves no live timer behind") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto f = vigil::spawn([] { sleep_for(1h); });
      sleep_for(1s);
      CHECK(vigil::stats().timers_pending == 1);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(since(start) == 1s);
      CHECK(vigil::stats().timers_pending == 0);
      CHECK(vigil::stats().fibers_sleeping == 0);
    });
  }

  TEST_CASE("a sleep of any length throws stopped once the fiber is asked to stop") {
    in_virtual([] {
      int thrown = 0;
      auto f = vigil::spawn([&] {
        try {
          sleep_for(1h);
        } catch (const vigil::stopped&) {
          ++thrown;
        }
        for (const nanoseconds d : {nanoseconds(0), nanoseconds(-1), nanoseconds(5)}) {
          try {
            sleep_for(d);
          } catch (const vigil::stopped&) {
            ++thrown;
          }
        }
      });
      sleep_for(1s);
      f.request_stop();
      f.join();
      CHECK(thrown == 4);
    });
  }

  // Go: TestSleep. Node, libuv: a signal does not fail a blocking call (eintr_handling).
  TEST_CASE("a sleep disturbed by signals still lasts its whole length") {
    struct sigaction action {};

    struct sigaction before {};

    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, &before);
    in_runtime({.workers = {1, 2}}, [] {
      const pthread_t sleeper = ::pthread_self();
      const pid_t its_number = ::gettid();
      std::atomic<bool> done{false};
      std::thread disturber([&] {
        while (!done.load()) {
          ::pthread_kill(sleeper, SIGUSR1);
          while (!done.load() && !is_asleep(its_number))
            std::this_thread::yield();
        }
      });
      const auto start = vigil::clock::now();
      sleep_for(50ms);
      CHECK(since(start) >= 50ms);
      done.store(true);
      disturber.join();
    });
    ::sigaction(SIGUSR1, &before, nullptr);
  }

  // Go: TestAfter, TestAfterTick; At least d, without tolerance. Node, libuv: up
  // to 1 ms early (libuv#4773).
  TEST_CASE("a real sleep never ends early by a nanosecond whatever its phase") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::vector<vigil::fiber<>> sleepers;
      for (int i = 0; i < 4; ++i) {
        sleepers.push_back(vigil::spawn([i] {
          seeded dice(static_cast<std::uint64_t>(i) + 1);
          for (int round = 0; round < rounds(300); ++round) {
            const nanoseconds nap(1 + dice.below(200'000));
            const auto start = vigil::clock::now();
            sleep_for(nap);
            REQUIRE(since(start) >= nap);
            const auto deadline = vigil::clock::now() + nap;
            sleep_until(deadline);
            REQUIRE(vigil::clock::now() >= deadline);
          }
        }));
      }
      for (auto& f : sleepers)
        f.join();
    });
  }

  TEST_CASE("ten thousand real sleepers all wake, none early") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::atomic<int> woken{0};
      const int n = rounds(10'000);
      for (int i = 0; i < n; ++i) {
        vigil::go([&woken, nap = nanoseconds(1 + i % 1000 * 10'000)] {
          const auto start = vigil::clock::now();
          sleep_for(nap);
          REQUIRE(since(start) >= nap);
          woken.fetch_add(1);
        });
      }
      while (woken.load() != n)
        sleep_for(1ms);
    });
  }

  TEST_CASE("sleeping again and again allocates no stack and grows no heap") {
    in_virtual([] {
      sleep_for(1ns);
      const auto before = vigil::stats();
      for (int i = 0; i < rounds(10'000); ++i)
        sleep_for(1us);
      const auto after = vigil::stats();
      CHECK(after.stacks_in_use == before.stacks_in_use);
      CHECK(after.heap_entries <= before.heap_entries + 1);
      CHECK(after.timers_fired - before.timers_fired == static_cast<std::uint64_t>(rounds(10'000)));
    });
  }
}

TEST_SUITE("clock") {
  TEST_CASE("is virtual on every fiber of a virtual run and monotonic elsewhere") {
    in_virtual([] {
      const auto here = vigil::clock::now();
      auto f = vigil::spawn([] { return vigil::clock::now(); });
      CHECK(f.join() == here);
      CHECK(here == vigil::testing::epoch);
    });
    const auto first = vigil::clock::now();
    CHECK(first < vigil::testing::epoch);  // counted from boot
    CHECK(vigil::clock::now() >= first);
  }

  TEST_CASE("deadline_in saturates at both ends") {
    in_virtual([] {
      CHECK(vigil::deadline_in(nanoseconds::max()) == vigil::clock::time_point::max());
      CHECK(vigil::deadline_in(std::chrono::hours::max()) == vigil::clock::time_point::max());
      CHECK(vigil::deadline_in(nanoseconds::min()) < vigil::clock::now());
      CHECK(vigil::deadline_in(1s) == vigil::testing::epoch + 1s);
      CHECK(vigil::deadline_at(std::chrono::system_clock::time_point::max()) ==
            vigil::clock::time_point::max());
    });
  }
}
