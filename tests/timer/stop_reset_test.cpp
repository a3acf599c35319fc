#include "sched/stop_tree.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using std::chrono::nanoseconds;
using vigil::after_func;
using vigil::sleep_for;
using vigil::timer;

}  // namespace

TEST_SUITE("timer stop") {
  // Go: TestAfterStop.
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

  TEST_CASE("an empty or moved-from handle has nothing to stop") {
    in_virtual([] {
      timer none;
      CHECK_FALSE(none.stop());
      CHECK_FALSE(none.stop_and_wait());
      CHECK_FALSE(static_cast<bool>(none));
      timer t = after_func(1s, [] {});
      timer moved = std::move(t);
      CHECK_FALSE(t.stop());  // NOLINT(bugprone-use-after-move): that is the test
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
      const int n = rounds(100'000);
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

  TEST_CASE("of many threads that stop one timer exactly one is told true") {
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

TEST_SUITE("timer reset") {
  // Go: TestReset.
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

  // libuv: timer_start_twice.
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

  // Go: TestTimerReset (synctest).
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

  TEST_CASE("resets that come in time keep a timer from ever running") {
    // libuv: timer_again. A reset every 50 ms keeps a 100 ms timer from running.
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

  TEST_CASE("of a due callback that has not started moves it") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::vector<nanoseconds> at;
      timer t = after_func(0s, [&] { at.push_back(since(start)); });
      CHECK(t.reset(1s));
      sleep_for(5s);
      CHECK(at == std::vector<nanoseconds>{1s});
    });
  }

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

  TEST_CASE("exactly one of stop, reset and the run takes each arming") {
    // Go: TestStopResult and TestResetResult. armings == prevented + runs.
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
          // A run that began before the stop may have been counted by itself only.
          CHECK(armings == prevented + runs.load());
        }));
      }
      for (auto& f : fibers)
        f.join();
    });
  }

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

TEST_SUITE("timer stop_and_wait") {
  TEST_CASE("waits for the callback that is running and is false") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(1s, [] { sleep_for(4s); });
      sleep_for(2s);
      CHECK_FALSE(t.stop_and_wait());
      CHECK(since(start) == 5s);
    });
  }

  TEST_CASE("is true at once for a pending timer and false at once for one that has run") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(1s, [] {});
      CHECK(t.stop_and_wait());
      t.reset(1s);
      sleep_for(2s);
      CHECK_FALSE(t.stop_and_wait());
      CHECK(since(start) == 2s);
    });
  }

  TEST_CASE("several may wait for the same run") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(1s, [] { sleep_for(4s); });
      sleep_for(2s);
      std::vector<vigil::fiber<>> waiters;
      for (int i = 0; i < 5; ++i) {
        waiters.push_back(vigil::spawn([&] {
          CHECK_FALSE(t.stop_and_wait());
          CHECK(since(start) == 5s);
        }));
      }
      for (auto& f : waiters)
        f.join();
    });
  }

  TEST_CASE("inside its own callback is an error that says what to call") {
    in_virtual([] {
      bool thrown = false;
      timer t;
      t = after_func(1s, [&] {
        try {
          t.stop_and_wait();
        } catch (const vigil::wrong_place& e) {
          thrown = std::string(e.what()).find("stop()") != std::string::npos;
        }
      });
      sleep_for(2s);
      CHECK(thrown);
    });
  }

  TEST_CASE("inside the callback of another timer waits") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer slow = after_func(1s, [] { sleep_for(4s); });
      bool done = false;
      after_func(2s, [&] {
        CHECK_FALSE(slow.stop_and_wait());
        CHECK(since(start) == 5s);
        done = true;
      });
      sleep_for(10s);
      CHECK(done);
    });
  }

  TEST_CASE("from a plain thread waits too") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> begun{false};
      std::atomic<bool> ended{false};
      timer t = after_func(0s, [&] {
        begun.store(true);
        sleep_for(5ms);
        ended.store(true);
      });
      while (!begun.load())
        vigil::this_fiber::yield();
      std::atomic<bool> returned{false};
      std::thread waiter([&] {
        CHECK_FALSE(t.stop_and_wait());
        CHECK(ended.load());
        returned.store(true);
      });
      while (!returned.load())
        sleep_for(1ms);
      waiter.join();
    });
  }

  TEST_CASE("ends early by a stop of the waiting fiber and leaves no waiter behind") {
    in_virtual([] {
      timer t = after_func(1s, [] { sleep_for(4s); });
      sleep_for(2s);
      auto f = vigil::spawn([&] { t.stop_and_wait(); });
      sleep_for(1s);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      sleep_for(10s);  // the run ends: nobody is there to be told
    });
  }

  TEST_CASE("with a context ends when that is done, and leaves no waiter behind") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto slow = after_func(1ms, [] { sleep_for(10s); });
      sleep_for(2ms);
      const auto it = vigil::with_timeout(vigil::background(), 1s);
      CHECK_THROWS_AS(static_cast<void>(slow.stop_and_wait(it.ctx)), vigil::cancelled);
      CHECK(since(start) == 1s + 2ms);
      CHECK_FALSE(slow.stop_and_wait(vigil::background()));
      CHECK(since(start) == 10s + 1ms);
      // What need not wait does not, whatever the context.
      CHECK_FALSE(slow.stop_and_wait(it.ctx));
      auto pending = after_func(1s, [] {});
      CHECK(pending.stop_and_wait(it.ctx));
      CHECK(timer(1s).stop_and_wait(it.ctx));
      CHECK_FALSE(timer().stop_and_wait(it.ctx));
      CHECK_THROWS_AS(static_cast<void>(slow.stop_and_wait(vigil::context())),
                      std::invalid_argument);
    });
  }

  TEST_CASE("with a context ends from a plain thread, too") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      auto may_end = vigil::make_channel<void>();
      auto begun = vigil::make_channel<void>();
      auto slow = after_func(0s, [=] {
        begun.send();
        may_end.recv();
      });
      begun.recv();
      const auto it = vigil::with_cancel(vigil::background());
      std::thread waiting([&] {
        CHECK_THROWS_AS(static_cast<void>(slow.stop_and_wait(it.ctx)), vigil::cancelled);
      });
      while (it.ctx.stop()->waiters() == 0)
        sleep_for(100us);
      it.cancel();
      waiting.join();
      may_end.send();
      CHECK_FALSE(slow.stop_and_wait());
    });
  }

  TEST_CASE("no run is under way when it returns, whatever the race") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      for (int round = 0; round < rounds(2000); ++round) {
        auto guarded = std::make_unique<std::atomic<int>>(0);
        timer t = after_func(nanoseconds(round % 20 * 1000), [p = guarded.get()] {
          p->fetch_add(1);
          vigil::this_fiber::yield();
          p->fetch_add(1);
        });
        if (round % 3 == 0) vigil::this_fiber::yield();
        if (round % 3 == 1) sleep_for(10us);
        const bool prevented = t.stop_and_wait();
        CHECK(guarded->load() == (prevented ? 0 : 2));
      }
    });
  }
}

TEST_SUITE("timer deadline") {
  TEST_CASE("and remaining tell when it runs next, and the maximum if it does not") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(10s, [] {});
      CHECK(t.deadline() == start + 10s);
      CHECK(t.remaining() == 10s);
      sleep_for(4s);
      CHECK(t.deadline() == start + 10s);
      CHECK(t.remaining() == 6s);
      t.reset(1h);
      CHECK(t.remaining() == 1h);
      t.stop();
      CHECK(t.deadline() == vigil::clock::time_point::max());
      CHECK(t.remaining() == nanoseconds::max());
      t.reset(1s);
      sleep_for(2s);
      CHECK(t.deadline() == vigil::clock::time_point::max());
      const timer none;
      CHECK(none.deadline() == vigil::clock::time_point::max());
      CHECK(none.remaining() == nanoseconds::max());
    });
  }

  TEST_CASE("inside the callback there is none") {
    in_virtual([] {
      timer t;
      bool none = false;
      t = after_func(1s, [&] { none = t.deadline() == vigil::clock::time_point::max(); });
      sleep_for(2s);
      CHECK(none);
    });
  }

  TEST_CASE("remaining is zero while the callback is due and waits for its turn") {
    in_virtual([] {
      timer t = after_func(0s, [] {});
      CHECK(t.remaining() == 0s);
      CHECK(t.deadline() == vigil::clock::now());
      CHECK(t.reset(-5s));
      CHECK(t.remaining() == 0s);
      t.stop();
    });
  }

  TEST_CASE("ref and unref are a flag, set at the start") {
    in_virtual([] {
      timer t = after_func(1s, [] {});
      CHECK(t.has_ref());
      t.unref();
      t.unref();
      CHECK_FALSE(t.has_ref());
      t.ref();
      CHECK(t.has_ref());
      CHECK_FALSE(timer().has_ref());
      t.stop();
    });
  }
}
