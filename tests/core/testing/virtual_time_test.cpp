#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <vigil/testing.hpp>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::sleep_for;
using vigil::spawn;
using vigil::testing::run_virtual;
using vigil::testing::settle;
using vigil::testing::virtual_options;

namespace {

// A run with many choices; returns its history as text.
std::string history(std::uint64_t seed) {
  return run_virtual({.seed = seed, .runtime = {}}, [] {
    std::string text;
    std::vector<vigil::fiber<>> fibers;
    for (int i = 0; i < 10; ++i) {
      fibers.push_back(spawn([&text, i] {
        for (int round = 0; round < 10; ++round) {
          text += static_cast<char>('a' + i);
          if ((i + round) % 3 == 0) {
            vigil::this_fiber::yield();
          } else {
            sleep_for(1ms * (round % 4));
          }
        }
      }));
    }
    auto t = vigil::every(1ms, [&text] { text += '.'; });
    for (auto& f : fibers)
      f.join();
    t.stop();
    return text + std::to_string(vigil::clock::now().time_since_epoch().count());
  });
}

}  // namespace

TEST_SUITE("run_virtual") {
  // Go: TestNow.
  TEST_CASE("starts its clock at 2000-01-01 and returns f's result") {
    CHECK(run_virtual([] { return vigil::clock::now(); }) == vigil::testing::epoch);
    CHECK(vigil::testing::epoch.time_since_epoch() == 946'684'800s);
    CHECK(run_virtual([] {}) == 0);
    CHECK(*run_virtual([] { return std::make_unique<int>(7); }) == 7);
  }

  TEST_CASE("runs f on the calling thread and every other fiber too") {
    const auto here = std::this_thread::get_id();
    run_virtual([here] {
      CHECK(std::this_thread::get_id() == here);
      auto f = spawn([] { return std::this_thread::get_id(); });
      CHECK(f.join() == here);
      vigil::after_func(1s, [here] { CHECK(std::this_thread::get_id() == here); });
      sleep_for(2s);
    });
  }

  TEST_CASE("has a runtime object, whose fibers, timers and figures are this run's") {
    const vigil::runtime* seen = nullptr;
    const std::chrono::nanoseconds took = run_virtual([&] {
      const auto start = vigil::clock::now();
      vigil::runtime& rt = vigil::runtime::current();
      seen = &rt;
      CHECK(spawn([] { return &vigil::runtime::current(); }).join() == &rt);
      CHECK(rt.stats().fibers_alive == vigil::stats().fibers_alive);
      auto told = vigil::make_channel<int>(2);
      rt.go([told] { told.send(1); });
      rt.after_func(1h, [told] { told.send(2); });
      CHECK(told.recv() == 1);
      CHECK(told.recv() == 2);
      return vigil::clock::now() - start;
    });
    CHECK(seen != nullptr);
    CHECK(took == 1h);
  }

  TEST_CASE("rethrows f's exception") {
    CHECK_THROWS_WITH_AS(
        run_virtual([] { throw std::runtime_error("planted"); }), "planted", std::runtime_error);
    CHECK_THROWS_AS(run_virtual([]() -> int { throw 5; }), int);
  }

  TEST_CASE("the clock stands still while anything can run") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      bool fired = false;
      vigil::after_func(1ns, [&] { fired = true; });
      for (int i = 0; i < 1000; ++i) {
        vigil::go([] {});
        vigil::this_fiber::yield();
      }
      settle();
      CHECK_FALSE(fired);
      CHECK(since(start) == 0s);
      sleep_for(1ns);
      CHECK(since(start) == 1ns);
    });
  }

  TEST_CASE("a year of timers takes no time") {
    const auto start = std::chrono::steady_clock::now();
    int runs = 0;
    run_virtual([&] {
      auto t = vigil::every(1h, [&] { ++runs; });
      sleep_for(std::chrono::hours(24 * 365) + 1ns);
      t.stop();
    });
    CHECK(runs == 24 * 365);
    CHECK(std::chrono::steady_clock::now() - start < 1h);
  }

  TEST_CASE("one seed gives the same order each time, another seed another") {
    std::set<std::string> seen;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const std::string first = history(seed);
      CHECK(history(seed) == first);
      seen.insert(first);
    }
    CHECK(seen.size() == 20);
  }

  TEST_CASE("the seed comes from VIGIL_SEED unless it is given") {
    const std::string with_five = history(5);
    ::setenv("VIGIL_SEED", "5", 1);
    CHECK(history(0) == with_five);
    CHECK(history(6) != with_five);
    ::unsetenv("VIGIL_SEED");
    CHECK(history(0) == history(1));
  }

  TEST_CASE("earlier activity in the process does not change a run") {
    const std::string before = history(3);
    static_cast<void>(history(17));
    in_runtime({.workers = {2}}, [] { sleep_for(100us); });
    CHECK(history(3) == before);
  }

  // Go: TestDeadlockRoot, TestDeadlockChild.
  TEST_CASE("fibers that wait for one another for ever are a deadlock") {
    CHECK_THROWS_AS(run_virtual([] { sleep_for(std::chrono::nanoseconds::max()); }),
                    vigil::deadlock);
    CHECK_THROWS_AS(
        run_virtual([] { spawn([] { sleep_for(std::chrono::nanoseconds::max()); }).join(); }),
        vigil::deadlock);
  }

  // Go: TestDeadlockTicker.
  TEST_CASE("a ticking every keeps a program from being a deadlock") {
    run_virtual([] {
      int ticks = 0;
      vigil::fiber<> f = spawn([] { sleep_for(std::chrono::nanoseconds::max()); });
      auto t = vigil::every(1s, [&] {
        if (++ticks == 1000) f.request_stop();
      });
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(ticks == 1000);
      t.stop();
    });
  }

  TEST_CASE("time stands still while outside work is announced") {
    vigil::detail::scheduler_options o = vigil::detail::checked({});
    o.workers = 1;
    o.virtual_time = true;
    vigil::detail::runtime_core core(o);
    std::atomic<bool> finished{false};
    std::thread outside;
    auto body = [&] {
      core.sched.outside.add();
      bool fired = false;
      vigil::after_func(1s, [&] { fired = true; });
      outside = std::thread([&] {
        // By then time would have gone on, if it did.
        wait_until_at_rest(core.sched);
        CHECK_FALSE(finished.load());
        core.sched.outside.end();
      });
      sleep_for(2s);
      finished.store(true);
      CHECK(fired);
      CHECK(vigil::clock::now() == vigil::testing::epoch + 2s);
    };
    core.sched.run(body);
    outside.join();
  }

  TEST_CASE("two virtual runs on two threads do not disturb each other") {
    const std::string expected = history(9);
    std::string other;
    std::thread thread([&] {
      for (int i = 0; i < rounds(40); ++i)
        other = history(9);
    });
    for (int i = 0; i < rounds(40); ++i)
      CHECK(history(9) == expected);
    thread.join();
    CHECK(other == expected);
  }

  TEST_CASE("random waits end at exactly their instants, whatever the seed") {
    for_each_seed(10, [](std::uint64_t seed) {
      seeded dice(seed * 77);
      const auto start = vigil::clock::now();
      int wakes = 0;
      for (int i = 0; i < 100; ++i) {
        vigil::go([&, i] {
          auto at = start;
          for (int round = 0; round < 20; ++round) {
            const auto nap = std::chrono::nanoseconds(dice.below(1000) * (i % 3 == 0 ? 1000 : 1));
            at += nap;
            sleep_for(nap);
            REQUIRE(vigil::clock::now() == at);
            ++wakes;
          }
        });
      }
      sleep_for(1h);
      CHECK(wakes == 2000);
    });
  }
}

TEST_SUITE("settle") {
  // Go: TestRunEmpty, TestSimpleWait, TestGoroutineWait, TestWait.
  TEST_CASE("returns when every other fiber has ended or is parked") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      int depth = 0;
      std::function<void()> deeper = [&] {
        if (++depth < 100) vigil::go(deeper);
      };
      vigil::go(deeper);
      auto sleeper = spawn([] { sleep_for(1h); });
      settle();
      CHECK(depth == 100);
      CHECK(since(start) == 0s);
      CHECK(vigil::stats().fibers_sleeping == 1);
      sleeper.request_stop();
    });
  }

  TEST_CASE("lets everything that is due now run first, and everything that this starts") {
    for_each_seed(20, [] {
      int runs = 0;
      vigil::after_func(0s, [&] {
        ++runs;
        vigil::after_func(0s, [&] { ++runs; });
      });
      vigil::after_func(1ns, [&] { runs += 100; });
      settle();
      CHECK(runs == 2);
      sleep_for(1s);
      vigil::after_func(-1s, [&] { ++runs; });
      settle();
      CHECK(runs == 103);
    });
  }

  // Go: TestRunEmpty, TestSimpleWait, TestGoroutineWait, TestWait.
  TEST_CASE("alone returns at once, again and again") {
    in_virtual([] {
      for (int i = 0; i < 100; ++i)
        settle();
      CHECK(vigil::clock::now() == vigil::testing::epoch);
    });
  }

  // Go: one waiter at a time, not from outside.
  TEST_CASE("one caller at a time") {
    in_virtual([] {
      int refused = 0;
      for (int i = 0; i < 2; ++i) {
        vigil::go([&] {
          try {
            settle();
          } catch (const vigil::wrong_place&) {
            ++refused;
          }
        });
      }
      sleep_for(1s);
      CHECK(refused == 1);
      settle();
    });
  }

  // Go: one waiter at a time, not from outside.
  TEST_CASE("outside virtual time is refused") {
    in_runtime({.workers = {1}}, [] { CHECK_THROWS_AS(settle(), vigil::wrong_place); });
    CHECK_THROWS_AS(settle(), vigil::wrong_place);
  }

  TEST_CASE("ends by a stop like any wait and leaves the place free") {
    in_virtual([] {
      auto f = spawn([] { settle(); });
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      settle();
    });
  }

  // Go: TestHappensBefore.
  TEST_CASE("orders the others' earlier actions before everything after it") {
    in_virtual([] {
      int plain = 0;
      vigil::go([&] { plain = 5; });
      settle();
      CHECK(plain == 5);
    });
  }
}
