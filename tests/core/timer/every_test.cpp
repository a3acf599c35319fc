#include "core/timer/timer_service.hpp"
#include "core/timer/timer_test.hpp"

#include <stdexcept>

namespace {

using namespace vigil::testing_support;
using times = std::vector<nanoseconds>;

// The times at which a timer of that period runs within `whole`, when the first run takes
// `slow`.
times runs_after_a_slow_one(nanoseconds period, nanoseconds slow, nanoseconds whole) {
  times at;
  in_virtual([&] {
    const auto start = vigil::clock::now();
    timer t = every(period, [&] {
      at.push_back(since(start));
      if (at.size() == 1) sleep_for(slow);
    });
    sleep_for(whole);
    t.stop();
  });
  return at;
}

}  // namespace

TEST_SUITE("every") {
  // Go: TestTicker.
  TEST_CASE("runs at start plus n periods, the first time after one period") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t = every(100ms, [&] { at.push_back(since(start)); });
      sleep_for(550ms);
      CHECK(at == times{100ms, 200ms, 300ms, 400ms, 500ms});
      CHECK(t.stop());
      sleep_for(1s);
      CHECK(at.size() == 5);
    });
  }

  TEST_CASE("keeps running without a handle") {
    in_virtual([] {
      int runs = 0;
      static_cast<void>(every(1s, [&] { ++runs; }));
      sleep_for(10s + 1ns);
      CHECK(runs == 10);
    });
  }

  // Node, libuv: repeat + callback time (libuv#1142).
  TEST_CASE("a callback shorter than the period does not shift the schedule") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t = every(20ms, [&] {
        at.push_back(since(start));
        sleep_for(7ms);
      });
      sleep_for(110ms);
      CHECK(at == times{20ms, 40ms, 60ms, 80ms, 100ms});
      t.stop();
      sleep_for(10ms);
    });
  }

  // Go: Period rule, its example. Node, libuv: lateness adds up (node#21822), ticks
  // buffered.
  TEST_CASE("runs missed by a slow callback collapse into one and the phase is kept") {
    CHECK(runs_after_a_slow_one(100ms, 250ms, 650ms) == times{100ms, 350ms, 400ms, 500ms, 600ms});
  }

  // Node, libuv: timer_no_double_call.
  TEST_CASE("a callback that ends on a deadline of the phase runs once there") {
    CHECK(runs_after_a_slow_one(10ms, 30ms, 65ms) == times{10ms, 40ms, 50ms, 60ms});
  }

  // Go: Two runs at once.
  TEST_CASE("two runs never overlap however slow the callback") {
    for_each_seed(5, [](std::uint64_t seed) {
      seeded dice(seed);
      int inside = 0;
      int runs = 0;
      timer t = every(1ms, [&] {
        CHECK(++inside == 1);
        ++runs;
        sleep_for(nanoseconds(dice.below(5'000'000)));
        --inside;
      });
      for (int i = 0; i < 50; ++i) {
        sleep_for(nanoseconds(dice.below(3'000'000)));
        t.reset(1ms);
      }
      t.stop_and_wait();
      CHECK(runs > 20);
      CHECK(inside == 0);
    });
  }

  TEST_CASE("two runs never overlap in real time on many workers") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::atomic<int> inside{0};
      std::atomic<int> runs{0};
      std::atomic<bool> overlapped{false};
      timer t = every(1us, [&] {
        if (inside.fetch_add(1) != 0) overlapped.store(true);
        runs.fetch_add(1);
        vigil::this_fiber::yield();
        inside.fetch_sub(1);
      });
      // A reset in every round would push the deadline away for ever.
      for (int before = 0; before < rounds(2000); before = runs.load()) {
        t.reset(1us);
        while (runs.load() == before)
          vigil::this_fiber::yield();
      }
      t.stop_and_wait();
      CHECK_FALSE(overlapped.load());
      CHECK(inside.load() == 0);
    });
  }

  // Go: TestTeardown. Node, libuv: re-armed before the callback runs.
  TEST_CASE("inside the callback deadline is the next run, stop and reset work") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t;
      t = every(1s, [&] {
        at.push_back(since(start));
        CHECK(t.deadline() == vigil::clock::now() + 1s);
        if (at.size() == 3) CHECK(t.stop());
      });
      sleep_for(10s);
      CHECK(at == times{1s, 2s, 3s});
      CHECK(t.deadline() == vigil::clock::time_point::max());
      CHECK_FALSE(t.stop());
    });
  }

  // Go: TestTicker; Ticker.Reset, Stop, revival.
  TEST_CASE("reset gives a new period counted from now") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t = every(10ms, [&] { at.push_back(since(start)); });
      sleep_for(25ms);
      CHECK(t.reset(20ms));
      sleep_for(90ms);
      CHECK(at == times{10ms, 20ms, 45ms, 65ms, 85ms, 105ms});
      t.stop();
    });
  }

  // libuv lets the filed run happen first; here it is replaced.
  // Node, libuv: set_repeat inside the callback.
  TEST_CASE("reset inside the callback replaces the run that is filed and is true") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t;
      t = every(10ms, [&] {
        at.push_back(since(start));
        if (at.size() == 1) CHECK(t.reset(50ms));
      });
      sleep_for(125ms);
      CHECK(at == times{10ms, 60ms, 110ms});
      t.stop();
    });
  }

  // Go: Ticker.Reset, Stop, revival.
  TEST_CASE("a stopped one is revived by reset with the new period") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t = every(10ms, [&] { at.push_back(since(start)); });
      sleep_for(15ms);
      CHECK(t.stop());
      sleep_for(100ms);
      CHECK_FALSE(t.reset(5ms));
      sleep_for(12ms);
      CHECK(at == times{10ms, 120ms, 125ms});
      t.stop();
    });
  }

  TEST_CASE("stop during a run prevents the next one and is true") {
    in_virtual([] {
      int runs = 0;
      timer t = every(1s, [&] {
        ++runs;
        sleep_for(500ms);
      });
      sleep_for(1200ms);
      CHECK(t.stop());
      CHECK_FALSE(t.stop());
      sleep_for(10s);
      CHECK(runs == 1);
    });
  }

  TEST_CASE("stop_and_wait during a run waits for its end") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = every(1s, [] { sleep_for(500ms); });
      sleep_for(1200ms);
      CHECK(t.stop_and_wait());
      CHECK(since(start) == 1500ms);
      sleep_for(5s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  // Node, libuv: re-armed before the callback runs.
  TEST_CASE("counted from the end the next run is one period after the last") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t;
      t = every(
          10ms,
          [&] {
            at.push_back(since(start));
            CHECK(t.deadline() == vigil::clock::time_point::max());
            sleep_for(5ms);
          },
          vigil::from_end);
      sleep_for(60ms);
      CHECK(at == times{10ms, 25ms, 40ms, 55ms});
      t.stop();
      sleep_for(10ms);
    });
  }

  TEST_CASE("counted from the end it can be stopped and reset inside the callback") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times at;
      timer t;
      t = every(
          10ms,
          [&] {
            at.push_back(since(start));
            if (at.size() == 1) t.reset(50ms);
            if (at.size() == 3) t.stop();
          },
          vigil::from_end);
      sleep_for(1s);
      CHECK(at == times{10ms, 60ms, 110ms});
    });
  }

  // Go: TestNewTickerLtZeroDuration, TestTickerResetLtZeroDuration.
  TEST_CASE("a period of zero or less is refused and nothing changes") {
    in_virtual([] {
      CHECK_THROWS_AS(every(0s, [] {}), std::invalid_argument);
      CHECK_THROWS_AS(every(-1ns, [] {}), std::invalid_argument);
      CHECK_THROWS_AS(every(
                          0s, [] {}, vigil::from_end),
                      std::invalid_argument);
      int runs = 0;
      timer t = every(10ms, [&] { ++runs; });
      CHECK_THROWS_AS(t.reset(0s), std::invalid_argument);
      CHECK_THROWS_AS(t.reset(-1s), std::invalid_argument);
      CHECK_THROWS_AS(t.reset(vigil::clock::now() + 1s), std::logic_error);
      sleep_for(25ms);
      CHECK(runs == 2);
      t.stop();
    });
  }

  // Go: TestOverflowPeriodRuntimeTimer. Node, libuv: timer_huge_timeout,
  // timer_huge_repeat.
  TEST_CASE("a period up to the end of the clock never runs and disturbs no other") {
    in_virtual([] {
      int huge_runs = 0;
      int runs = 0;
      timer huge = every(nanoseconds::max(), [&] { ++huge_runs; });
      timer t = every(10ms, [&] { ++runs; });
      sleep_for(35ms);
      CHECK(huge_runs == 0);
      CHECK(runs == 3);
      t.stop();
      CHECK(huge.stop());
    });
  }

  // Go: TestOverflowPeriodRuntimeTimer.
  TEST_CASE("a next deadline that overflows is never reached") {
    in_virtual([] {
      auto& service =
          static_cast<vigil::detail::timer_service&>(vigil::detail::current_scheduler()->timers());
      int runs = 0;
      // A timer that is due now and has the longest period: no call of the API makes one.
      auto* const record = service.make_record(
          vigil::detail::callback([&] { ++runs; }), INT64_MAX, false, vigil::site::current());
      timer t(record);
      const vigil::detail::nanos now = vigil::clock::now().time_since_epoch().count();
      service.reset_at(*record, now);
      sleep_for(25ms);
      CHECK(runs == 1);
      int others = 0;
      vigil::after_func(25ms, [&] { ++others; });
      sleep_for(1h);
      CHECK(others == 1);
      CHECK(runs == 1);
      CHECK(t.stop());
    });
  }

  // Node, libuv: an interval that throws goes on.
  TEST_CASE("an exception goes to on_unhandled and the next run comes") {
    static int seen = 0;
    seen = 0;
    vigil::testing::virtual_options how;
    how.runtime.on_unhandled = [](std::exception_ptr) { ++seen; };
    in_virtual(how, [] {
      timer t = every(1s, [] { throw std::runtime_error("planted"); });
      sleep_for(3s + 1ns);
      t.stop();
    });
    CHECK(seen == 3);
  }

  // Go: TestTickerStress. Node, libuv: overload of intervals starves nobody.
  TEST_CASE("a period of a nanosecond gets its runs beside a busy program") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> done{false};
      auto churn = vigil::spawn([&] {
        while (!done.load()) {
          sleep_for(1ns);
          const std::vector<int> garbage(100);
          vigil::this_fiber::yield();
        }
      });
      std::atomic<int> runs{0};
      timer t = every(1ns, [&] { runs.fetch_add(1); });
      while (runs.load() < 100)
        vigil::this_fiber::yield();
      t.stop_and_wait();
      done.store(true);
      churn.join();
    });
  }

  // Each run costs twice the period, and there is one worker.
  // Node, libuv: overload of intervals starves nobody.
  TEST_CASE("two that always have a run due starve neither a sleep nor the side pool") {
    in_runtime({.workers = {1}}, [] {
      std::atomic<int> runs[2] = {};
      const auto costly = [&](int which) {
        const auto begun = vigil::clock::now();
        while (since(begun) < 2ms) {
        }
        ++runs[which];
      };
      const timer one = every(1ms, [&] { costly(0); });
      const timer two = every(1ms, [&] { costly(1); });
      for (int i = 0; i < 3; ++i) {
        const int before[2] = {runs[0], runs[1]};
        CHECK(vigil::blocking([] { return 7; }) == 7);
        sleep_for(1ms);
        while (runs[0] == before[0] || runs[1] == before[1])
          sleep_for(1ms);
      }
      one.stop_and_wait();
      two.stop_and_wait();
    });
  }

  // Real time, so lower bounds only.
  // Go: TestTicker.
  TEST_CASE("no real run comes before its place in the phase") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto start = vigil::clock::now();
      std::atomic<int> runs{0};
      std::atomic<bool> early{false};
      timer t = every(1ms, [&] {
        if (since(start) < 1ms * (runs.load() + 1)) early.store(true);
        runs.fetch_add(1);
      });
      while (runs.load() < 20)
        sleep_for(1ms);
      t.stop_and_wait();
      CHECK_FALSE(early.load());
    });
  }
}
