// timer::stop: its result, and that a stopped timer never runs.
#include "core/timer/timer_test.hpp"
#include "support/memory.hpp"

using namespace vigil::testing_support;

TEST_SUITE("timer stop") {
  // Go: TestAfterStop (func); Stop, func timer; Stop twice.
  TEST_CASE("is true for a pending timer, false the second time, and nothing runs") {
    in_virtual([] {
      int runs = 0;
      timer a = after_func(50ms, [&] { ++runs; });
      timer b = after_func(150ms, [&] { ++runs; });
      CHECK(a.stop());
      CHECK(b.stop());
      sleep_for(200ms);
      CHECK(runs == 0);
      CHECK_FALSE(a.stop());
      CHECK_FALSE(b.stop());
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  // Go: Stop, func timer; Stop twice.
  TEST_CASE("is false once the callback has begun, has ended, or is the caller") {
    in_virtual([] {
      auto t = std::make_shared<timer>();
      *t = after_func(1s, [t] {
        CHECK_FALSE(t->stop());
        sleep_for(2s);
      });
      sleep_for(2s);
      CHECK_FALSE(t->stop());  // running
      sleep_for(2s);
      CHECK_FALSE(t->stop());  // ended
      *t = timer();
    });
  }

  // Go: TestZeroTimerResetPanics, -StopPanics. Node, libuv: stopping an inactive
  // timer, clearing twice.
  TEST_CASE("an empty or moved-from handle has nothing to stop") {
    in_virtual([] {
      timer none;
      CHECK_FALSE(none.stop());
      CHECK_FALSE(none.stop_and_wait());
      CHECK_FALSE(static_cast<bool>(none));
      timer t = after_func(1s, [] {});
      timer moved = std::move(t);
      CHECK_FALSE(t.stop());  // NOLINT(bugprone-use-after-move): the move is what is tested
      CHECK(moved.stop());
    });
  }

  TEST_CASE("copies name the same timer") {
    in_virtual([] {
      timer a = after_func(1s, [] {});
      timer b = a;
      CHECK(b.stop());
      CHECK_FALSE(a.stop());
      CHECK_FALSE(a.reset(1s));
      CHECK(b.stop());
    });
  }

  // Go: AfterFunc(<= 0).
  TEST_CASE("a due callback that has not started is still pending") {
    in_virtual([] {
      bool ran = false;
      timer t = after_func(0s, [&] { ran = true; });
      CHECK(t.stop());
      sleep_for(1s);
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("is true exactly if the callback of this instant does not run") {
    int stopped_first = 0;
    for_each_seed(100, [&] {
      bool ran = false;
      timer t = after_func(1s, [&] { ran = true; });
      sleep_for(1s);  // wakes at the instant at which t is due
      const bool prevented = t.stop();
      const bool had_run = ran;
      CHECK(prevented != had_run);
      sleep_for(1s);
      CHECK(ran == had_run);
      stopped_first += prevented ? 1 : 0;
    });
    CHECK(stopped_first > 0);
    CHECK(stopped_first < 100);
  }

  TEST_CASE("a callback may stop another one of the same instant") {
    for_each_seed(50, [] {
      int runs = 0;
      int prevented = 0;
      timer a;
      timer b;
      a = after_func(1s, [&] {
        ++runs;
        prevented += b.stop() ? 1 : 0;
      });
      b = after_func(1s, [&] {
        ++runs;
        prevented += a.stop() ? 1 : 0;
      });
      sleep_for(2s);
      CHECK(runs == 1);
      CHECK(prevented == 1);
    });
  }

  // Go: TestTimerStopStress.
  TEST_CASE("a hundred thousand timers stopped at half their time never run") {
    in_virtual([] {
      const int n = stacks_at_once(rounds(100'000));
      int stopped = 0;
      for (int i = 0; i < n; ++i) {
        vigil::go([&] {
          timer t = after_func(2s, [] { FAIL("a stopped timer ran"); });
          sleep_for(1s);
          stopped += t.stop() ? 1 : 0;
        });
      }
      sleep_for(5s);
      CHECK(stopped == n);
    });
  }

  // Go: Stop by several.
  TEST_CASE("exactly one of many threads that stop one timer gets true") {
    in_runtime({.workers = {1, 2}}, [](vigil::runtime&) {
      for (int round = 0; round < rounds(300); ++round) {
        std::atomic<int> told{0};
        std::atomic<bool> ran{false};
        timer t = after_func(std::chrono::microseconds(round % 50), [&] { ran.store(true); });
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
          threads.emplace_back([&] { told.fetch_add(t.stop() ? 1 : 0); });
        }
        for (auto& thread : threads)
          thread.join();
        t.stop_and_wait();
        CHECK(told.load() + (ran.load() ? 1 : 0) == 1);
      }
    });
  }

  // Go: TestTimerGC.
  TEST_CASE("arm and stop in a loop leaves a bounded number of dead entries") {
    in_runtime({.workers = {1, 2}}, [] {
      timer keep = after_func(1h, [] {});
      std::uint64_t most = 0;
      for (int i = 0; i < rounds(200'000); ++i) {
        after_func(1h, [] {}).stop();
        if (i % 1000 == 0) most = std::max(most, vigil::stats().heap_entries);
      }
      CHECK(most < 4000);
      keep.stop();
    });
  }
}
