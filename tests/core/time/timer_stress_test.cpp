// Real time, several workers, plain threads. Each promise is checked under every
// interleaving that occurs; no delay is bounded from above.
#include "core/time/timer_stress.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

using namespace vigil::testing_support;

TEST_SUITE("timers with channels in real time") {
  // Go: TestAfter; at least d, without tolerance.
  TEST_CASE("none comes before its deadline, and each hands its deadline over") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      in_fibers(8, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        for (int round = 0; round < rounds(200); ++round) {
          const nanoseconds delay(dice.below(200'000));
          const auto before = vigil::clock::now();
          timer t(delay);
          const instant deadline = t.deadline();
          REQUIRE(deadline >= before + delay);
          instant got{};
          switch (dice.below(4)) {
            case 0:
              got = t.channel().recv().value();
              break;
            case 1:
              got = t.channel().recv_for(1h).value();
              break;
            case 2:
              vigil::select(on_timeout(1h),
                            on_recv(t.channel(), [&](std::optional<instant> v) { got = *v; }));
              break;
            default:
              for (bool there = false; !there; vigil::this_fiber::yield()) {
                if (auto r = t.channel().try_recv()) {
                  there = true;
                  got = *r;
                }
              }
          }
          REQUIRE(got == deadline);
          REQUIRE(vigil::clock::now() >= deadline);
          REQUIRE_FALSE(t.stop());
        }
      });
    });
  }

  // Go: TestZeroTimer (chan, reused); fires while the receiver is on its way to park.
  TEST_CASE("none of many zero and tiny ones is missed, new or used again") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      in_fibers(4, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        timer again(1h);
        for (int round = 0; round < many(5'000); ++round) {
          REQUIRE(after(0s).recv().has_value());
          again.reset(0s);
          REQUIRE(again.channel().recv().has_value());
          again.reset(nanoseconds(1 + dice.below(3000)));
          REQUIRE(again.channel().recv().has_value());
          REQUIRE(after(nanoseconds(1 + dice.below(3000))).recv().has_value());
        }
      });
    });
  }

  // go#69312.
  // Go: TestStopResult, TestResetResult.
  TEST_CASE("stop and reset are true for the one of two that the select did not take") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      in_fibers(16, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        for (int round = 0; round < many(200); ++round) {
          const nanoseconds delay(dice.below(50'000));
          timer a(delay);
          timer b(delay);
          const bool first = vigil::select(on_recv(a.channel()), on_recv(b.channel())) == 0;
          timer& taken = first ? a : b;
          timer& left = first ? b : a;
          REQUIRE_FALSE(taken.stop());
          REQUIRE_FALSE(taken.channel().try_recv());
          if (dice.below(2) == 0) {
            REQUIRE(left.stop());
          } else {
            REQUIRE(left.reset(1h));
          }
          REQUIRE_FALSE(left.channel().try_recv());
        }
      });
    });
  }

  // With an expiry that races.
  // Go: TestChan 4.
  TEST_CASE("after a reset to the far future nothing stale is there, however near the expiry") {
    in_runtime({.workers = {1, 2}}, [] {
      in_fibers(4, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        timer t(1h);
        ticker k(1h);
        for (int round = 0; round < many(5'000); ++round) {
          REQUIRE(t.reset(nanoseconds(dice.below(2'000))));
          REQUIRE(k.reset(nanoseconds(1 + dice.below(2'000))));
          for (auto spin = dice.below(300); spin > 0; --spin)
            static_cast<void>(vigil::clock::now());
          REQUIRE(t.reset(1h));  // nobody else receives
          REQUIRE(k.reset(1h));
          REQUIRE_FALSE(t.channel().try_recv());
          REQUIRE_FALSE(k.channel().try_recv());
        }
      });
    });
  }

  // Every arming has a deadline of its own, which identifies its value.
  // Go: stale values.
  TEST_CASE(
      "each arming is received once or was prevented: fibers and a thread against one owner") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const int n = many(4'000);
      timer t(1h);
      const auto end = vigil::make_channel<void>();
      log_of_values log;
      std::vector<vigil::fiber<>> receivers;
      for (int i = 0; i < 3; ++i)
        receivers.push_back(vigil::spawn([&, c = t.channel()] { receive_all(c, end, log); }));
      plain_thread thread([&, c = t.channel()] { receive_all(c, end, log); });

      seeded dice(1);
      std::vector<instant> lets;  // armings that nothing prevented, in rising order
      REQUIRE(t.stop());
      instant armed = vigil::clock::now();
      bool is_armed = false;
      // On a busy machine the receivers may come late: it goes on until some values were
      // received.
      for (int round = 0; round < n || lets.size() <= 10; ++round) {
        if (dice.below(8) == 0) {
          if (t.stop()) {
            REQUIRE(is_armed);
          } else if (is_armed) {
            lets.push_back(armed);
          }
          is_armed = false;
        } else {
          const instant next =
              std::max(armed + 1ns, vigil::clock::now() + nanoseconds(dice.below(20'000)));
          if (t.reset(next)) {
            REQUIRE(is_armed);
          } else if (is_armed) {
            lets.push_back(armed);
          }
          armed = next;
          is_armed = true;
        }
        switch (dice.below(4)) {
          case 0:
            sleep_for(nanoseconds(dice.below(40'000)));
            break;
          case 1:
            vigil::this_fiber::yield();
            break;
          default:
            break;
        }
      }
      if (!t.stop() && is_armed) lets.push_back(armed);
      end.close();
      for (auto& f : receivers)
        f.join();
      thread.join();
      CHECK(log.sorted() == lets);
    });
  }

  // Go: stale values.
  TEST_CASE("several fibers reset and stop one timer while others receive: no stale value") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const int n = many(3'000);
      timer t(1h);
      REQUIRE(t.stop());
      const auto end = vigil::make_channel<void>();
      log_of_values log;
      std::vector<vigil::fiber<>> receivers;
      for (int i = 0; i < 2; ++i)
        receivers.push_back(vigil::spawn([&, c = t.channel()] { receive_all(c, end, log); }));
      plain_thread thread([&, c = t.channel()] { receive_all(c, end, log); });

      std::atomic<long> prevented{0};
      std::array<std::vector<instant>, 4> armed;
      const auto hammer = [&](std::size_t who) {
        seeded dice(who + 1);
        // The last two bits name the arming fiber and the others rise, so each value is
        // unique.
        std::int64_t last = 0;
        for (int round = 0; round < n; ++round) {
          if (dice.below(4) == 0) {
            prevented.fetch_add(t.stop() ? 1 : 0);
          } else {
            const std::int64_t now = vigil::clock::now().time_since_epoch().count();
            last = std::max(last + 4, now + static_cast<std::int64_t>(dice.below(10'000)));
            last = (last & ~std::int64_t{3}) | static_cast<std::int64_t>(who);
            const instant deadline{nanoseconds(last)};
            armed[who].push_back(deadline);
            prevented.fetch_add(t.reset(deadline) ? 1 : 0);
          }
          if (dice.below(64) == 0) std::this_thread::yield();
        }
      };
      plain_thread one([&] { hammer(0); });
      plain_thread two([&] { hammer(1); });
      in_fibers(2, [&](int i) { hammer(static_cast<std::size_t>(i) + 2); });
      one.join();
      two.join();
      prevented.fetch_add(t.stop() ? 1 : 0);
      REQUIRE_FALSE(t.channel().try_recv());
      end.close();
      for (auto& f : receivers)
        f.join();
      thread.join();

      std::vector<instant> all;
      for (const auto& mine : armed)
        all.insert(all.end(), mine.begin(), mine.end());
      std::sort(all.begin(), all.end());
      const auto got = log.sorted();
      CHECK(all_differ(got));
      CHECK(std::includes(all.begin(), all.end(), got.begin(), got.end()));
      // Each arming was either received, or ended by exactly one true.
      CHECK(all.size() == got.size() + static_cast<std::size_t>(prevented.load()));
    });
  }

  // The same for the order: a receive that begins after a reset has returned gets nothing
  // older than that reset.
  // Go: stale values.
  TEST_CASE("a receive that begins after a reset has returned gets nothing older") {
    in_runtime({.workers = {2, 4}}, [] {
      for (const bool ticks : {false, true}) {
        timer t(1h);
        ticker k(1h);
        const timer_receiver c = ticks ? k.channel() : t.channel();
        std::atomic<std::int64_t> floor{0};  // of the current arming and all later ones
        std::atomic<bool> done{false};
        std::vector<vigil::fiber<>> receivers;
        for (int i = 0; i < 3; ++i) {
          receivers.push_back(vigil::spawn([&] {
            while (!done.load()) {
              const std::int64_t least = floor.load();
              const auto got = c.recv_for(20us);
              if (got) REQUIRE(got.value().time_since_epoch().count() >= least);
              vigil::this_fiber::yield();  // a tick may be due at every look
            }
          }));
        }
        seeded dice(7);
        instant least{};
        for (int round = 0; round < many(3'000); ++round) {
          least = std::max(least, vigil::clock::now() + nanoseconds(1 + dice.below(5'000)));
          if (ticks) {
            k.reset(least - vigil::clock::now(), nanoseconds(1 + dice.below(5'000)));
          } else {
            t.reset(least);
          }
          floor.store(least.time_since_epoch().count());
          if (dice.below(4) == 0) sleep_for(nanoseconds(dice.below(20'000)));
        }
        done.store(true);
        for (auto& f : receivers)
          f.join();
      }
    });
  }

  // Go: Stop by several.
  TEST_CASE("exactly one of many stops and a receive takes the value of a timer") {
    in_runtime({.workers = {1, 2}}, [] {
      for (int round = 0; round < rounds(200); ++round) {
        timer t(microseconds(round % 50));
        std::atomic<int> taken{0};
        auto receiver = vigil::spawn([&, c = t.channel()] {
          if (c.recv_for(microseconds(round % 60))) taken.fetch_add(1);
        });
        std::vector<std::unique_ptr<plain_thread>> threads;
        for (int i = 0; i < 2; ++i) {
          threads.push_back(
              std::make_unique<plain_thread>([&] { taken.fetch_add(t.stop() ? 1 : 0); }));
        }
        in_fibers(2, [&](int) { taken.fetch_add(t.stop() ? 1 : 0); });
        for (auto& thread : threads)
          thread->join();
        receiver.join();
        REQUIRE(taken.load() == 1);
        REQUIRE_FALSE(t.channel().try_recv());
      }
    });
  }

  // Go: concurrent Reset and Stop.
  TEST_CASE("of concurrent resets the last to return decides, with a receiver blocked") {
    in_runtime({.workers = {2}}, [] {
      for (int round = 0; round < rounds(100); ++round) {
        timer t(1h);
        instant got{};
        auto receiver = vigil::spawn([&, c = t.channel()] { got = c.recv().value(); });
        std::vector<std::unique_ptr<plain_thread>> threads;
        for (int i = 0; i < 2; ++i) {
          threads.push_back(std::make_unique<plain_thread>([&, i] {
            for (int n = 0; n < 20; ++n)
              t.reset(std::chrono::minutes(i + n + 1));
          }));
        }
        for (auto& thread : threads)
          thread->join();
        REQUIRE(t.reset(1h));
        REQUIRE(t.remaining() > 59min);
        const instant last = vigil::clock::now() + 10us;
        REQUIRE(t.reset(last));
        receiver.join();
        REQUIRE(got == last);
        REQUIRE_FALSE(t.stop());
      }
    });
  }

  // Meant for ThreadSanitizer.
  // Go: TestNoRaceTimer, TestNoRaceTimerReset, TestNoRaceTicker, TestNoRaceTickerReset.
  TEST_CASE("a write before a reset is seen by the receiver") {
    in_runtime({.workers = {2, 4}}, [] {
      timer t(1h);
      ticker k(1h);
      const auto seen = vigil::make_channel<int>();
      int plain = 0;
      for (const timer_receiver& c : {t.channel(), k.channel()}) {
        auto receiver = vigil::spawn([&, c] {
          for (int round = 1; round <= rounds(2'000); ++round) {
            if (round % 3 == 0) vigil::this_fiber::yield();
            c.recv();
            seen.send(plain);
          }
        });
        seeded dice(3);
        for (int round = 1; round <= rounds(2'000); ++round) {
          plain = round;
          const nanoseconds delay(dice.below(2'000));
          c == t.channel() ? t.reset(delay) : k.reset(delay, 1h);
          REQUIRE(seen.recv() == round);
        }
        receiver.join();
      }
    });
  }
}
