#include "core/time/ticker_helpers.hpp"

using namespace vigil::testing_support;

TEST_SUITE("ticker") {
  // Go: TestTicker; delivered value.
  TEST_CASE("ticks at start plus n periods, each tick its own instant") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(100ms);
      for (int i = 1; i <= 1000; ++i) {
        CHECK(t.deadline() == start + i * 100ms);
        CHECK(t.channel().recv() == start + i * 100ms);
        CHECK(since(start) == i * 100ms);
      }
      CHECK(t.missed() == 0);
    });
  }

  // Go: TestTick.
  TEST_CASE("tick is a ticker without a handle, and with a period of zero or less a nil channel") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(ticks_of(tick(10ms), 1, start) == times{10ms});
      const auto c = tick(10ms);
      CHECK(ticks_of(c, 3, start) == times{20ms, 30ms, 40ms});
      for (const nanoseconds none : {0ns, -1ns, nanoseconds::min()}) {
        CHECK_FALSE(static_cast<bool>(tick(none)));
        CHECK_FALSE(tick(none).try_recv());
        CHECK(tick(none).recv_for(1s).is_timeout());
      }
    });
  }

  // Go: first tick at once, missed ticks, next tick moved.
  TEST_CASE("may tick first at another time, and then every period") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker at_once(0s, 100ms);
      CHECK(at_once.channel().try_recv().value() == start);
      CHECK(ticks_of(at_once.channel(), 2, start) == times{100ms, 200ms});
      ticker sooner(1ms, 100ms);
      CHECK(ticks_of(sooner.channel(), 3, start) == times{201ms, 301ms, 401ms});
      ticker later(1s, 100ms);
      CHECK(ticks_of(later.channel(), 3, start) == times{1401ms, 1501ms, 1601ms});
      CHECK(later.missed() == 0);
      CHECK(later.reset(7ms, 50ms));
      CHECK(ticks_of(later.channel(), 3, start) == times{1608ms, 1658ms, 1708ms});
      CHECK(later.reset(0s, 50ms));
      CHECK(ticks_of(later.channel(), 2, start) == times{1708ms, 1758ms});
    });
  }

  // Go: Reset to the past; zero or negative at creation.
  TEST_CASE("a negative first time is now: no tick before it is made up or counted") {
    in_virtual([] {
      sleep_for(1h);
      const auto start = vigil::clock::now();
      ticker t(-1500ms, 1s);
      CHECK(t.channel().recv() == start);
      CHECK(t.missed() == 0);
      CHECK(t.channel().recv() == start + 1s);
      ticker huge(nanoseconds::min(), 1s);
      CHECK(huge.channel().try_recv().value() == start + 1s);
      CHECK(huge.missed() == 0);
      CHECK(huge.channel().recv() == start + 2s);
      CHECK(huge.reset(-1ns, 1s));
      CHECK(huge.channel().try_recv().value() == start + 2s);
      CHECK(huge.missed() == 0);
    });
  }

  // Go: TestTickTimes; period arithmetic, its example, slow receiver; first tick at once,
  // missed ticks, next tick moved.
  TEST_CASE(
      "read late it hands over the first missed tick, drops the others, and keeps its phase") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(100ms);
      sleep_for(350ms);
      CHECK(t.deadline() == start + 100ms);  // due, not received
      CHECK(t.missed() == 0);                // counted when the late tick is received
      CHECK(t.channel().try_recv().value() == start + 100ms);
      CHECK(t.missed() == 2);
      CHECK(t.deadline() == start + 400ms);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.channel().recv() == start + 400ms);
      CHECK(since(start) == 400ms);
      CHECK(t.missed() == 2);
      sleep_for(1h);
      CHECK(t.channel().recv() == start + 500ms);
      CHECK(t.missed() == 2 + 36'000 - 1);
      CHECK(t.channel().recv() == start + 1h + 500ms);
    });
  }

  // Go: period arithmetic, its example, slow receiver.
  TEST_CASE("a look at the very instant of a tick drops those before it and leaves none") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(100ms);
      sleep_for(300ms);
      CHECK(t.channel().try_recv().value() == start + 100ms);
      CHECK(t.missed() == 2);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.deadline() == start + 400ms);
    });
  }

  // Go: period arithmetic, its example, slow receiver.
  TEST_CASE(
      "however late its receiver, values are on the grid, rise, and missed makes up the rest") {
    for_each_seed(20, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto start = vigil::clock::now();
      const nanoseconds period(1 + dice.below(1000));
      ticker t(period);
      std::int64_t last = 0;
      for (int i = 1; i <= 1000; ++i) {
        sleep_for(nanoseconds(dice.below(3000)));
        const auto before = vigil::clock::now();
        const bool blocks = dice.below(2) == 0;
        const auto got = blocks ? t.channel().recv() : [&]() -> std::optional<instant> {
          const auto r = t.channel().try_recv();
          if (!r) return std::nullopt;
          return *r;
        }();
        if (!got) {
          CHECK(t.deadline() > vigil::clock::now());
          --i;
          continue;
        }
        const nanoseconds offset = *got - start;
        REQUIRE(offset % period == 0ns);
        const std::int64_t n = offset / period;
        REQUIRE(n > last);
        last = n;
        REQUIRE(vigil::clock::now() == std::max(before, *got));
        // Every tick up to now was received or counted as missed.
        REQUIRE(static_cast<std::int64_t>(t.missed()) + i == since(start) / period);
      }
    });
  }

  // Go: period arithmetic, its example, slow receiver.
  TEST_CASE("a slow receiver in a select gets a tick for each round and no burst") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(10ms);
      times got;
      for (int i = 0; i < 4; ++i) {
        vigil::select(
            on_recv(t.channel(), [&](std::optional<instant> v) { got.push_back(*v - start); }));
        sleep_for(25ms);
      }
      CHECK(got == times{10ms, 20ms, 40ms, 70ms});
      CHECK(since(start) == 110ms);
      // The tick of 10 finds a receiver; at 35 comes that of 20 (30 dropped); at 60 that
      // of 40 (50 and 60 dropped); at 85 that of 70 (80 dropped).
      CHECK(t.missed() == 4);
    });
  }

  TEST_CASE("two receivers: each tick goes to one of them, in turn") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      ticker t(10ms);
      std::vector<std::pair<int, nanoseconds>> got;
      std::vector<vigil::fiber<>> fibers;
      for (int who = 0; who < 2; ++who) {
        fibers.push_back(vigil::spawn([&, who, c = t.channel()] {
          for (int i = 0; i < 50; ++i) {
            const auto v = c.recv();
            CHECK(vigil::clock::now() == *v);
            got.emplace_back(who, *v - start);
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
      REQUIRE(got.size() == 100);
      for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].second == (static_cast<int>(i) + 1) * 10ms);
        CHECK(got[i].first == got[i % 2].first);
      }
      CHECK(t.missed() == 0);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("with a period of a nanosecond a fast receiver misses nothing") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(1ns);
      for (int i = 1; i <= 1000; ++i)
        REQUIRE(t.channel().recv() == start + i * 1ns);
      CHECK(t.missed() == 0);
      sleep_for(1s);
      CHECK(t.channel().recv() == start + 1001ns);
      CHECK(t.missed() == 999'999'999);
      CHECK(t.channel().recv() == start + 1s + 1001ns);
    });
  }

  // Go: TestOverflowPeriodRuntimeTimer.
  TEST_CASE("with a period up to the end of the clock never ticks and disturbs no other") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker never(nanoseconds::max());
      ticker hours(std::chrono::hours::max());
      CHECK(vigil::select(on_recv(never.channel()), on_recv(hours.channel()), on_timeout(1h)) == 2);
      CHECK(never.stop());  // it was ticking
      CHECK_FALSE(never.stop());
      ticker once(1s, nanoseconds::max());
      CHECK(once.channel().recv() == start + 1h + 1s);
      CHECK(once.deadline() == instant::max());
      CHECK(once.channel().recv_for(25ms).is_timeout());
      CHECK(since(start) == 1h + 1s + 25ms);
      CHECK(once.stop());
    });
  }

  // Go: TestTeardown.
  TEST_CASE("can be made, received from once and stopped or dropped, again and again") {
    for_each_seed(5, [] {
      const auto start = vigil::clock::now();
      for (int i = 1; i <= 300; ++i) {
        auto t = std::make_unique<ticker>(10ms);
        CHECK(t->channel().recv() == start + i * 10ms);
        if (i % 3 == 0) t->stop();
        if (i % 3 == 1) {
          vigil::spawn([own = std::move(t)] {}).join();  // destroyed on another fiber
        }
      }
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  // Go: in the heap only while somebody is blocked.
  TEST_CASE("is in the heap only while somebody waits, and not between two ticks") {
    in_virtual([] {
      ticker t(10ms);
      auto f = vigil::spawn([&, c = t.channel()] {
        for (int i = 0; i < 10; ++i) {
          c.recv();
          CHECK(vigil::stats().timers_pending == 1);  // that of the main fiber's sleep
          sleep_for(5ms);
        }
      });
      sleep_for(1s);
      CHECK(vigil::stats().timers_pending == 0);
      CHECK(f.join_for(0s));
    });
  }

  // Go: stop does not end a range-for.
  TEST_CASE("in a range-for goes on until the fiber is stopped") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      times got;
      ticker t(1s);
      auto f = vigil::spawn([&] {
        for (const instant at : t.channel())
          got.push_back(at - start);
      });
      sleep_for(3500ms);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(got == times{1s, 2s, 3s});
      CHECK(t.channel().recv() == start + 4s);
    });
  }

  TEST_CASE("slack lets a tick come late and never shifts the phase") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(100ms);
      t.set_slack(30ms);
      for (int i = 1; i <= 10; ++i) {
        CHECK(t.channel().recv() == start + i * 100ms);
        CHECK(since(start) == i * 100ms + 30ms);
      }
      CHECK(t.missed() == 0);
    });
  }

  // It differs here: the end of main ends the others.
  // Go: TestDeadlockTicker.
  TEST_CASE("a fiber that waits on one when main returns is unwound") {
    bool unwound = false;
    in_virtual([&] {
      struct witness {
        ~witness() { at = true; }
        bool& at;
      };
      vigil::go([&] {
        const witness w{unwound};
        ticker t(1s);
        for (;;)
          t.channel().recv();
      });
      sleep_for(10s);
      CHECK_FALSE(unwound);
    });
    CHECK(unwound);
  }

  TEST_CASE("many with random periods all keep their phase side by side") {
    for_each_seed(5, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto start = vigil::clock::now();
      int ended = 0;
      for (int i = 0; i < 100; ++i) {
        vigil::go([&ended,
                   start,
                   first = nanoseconds(dice.below(5000)),
                   period = nanoseconds(1000 + dice.below(5000))] {
          ticker t(first, period);
          for (int n = 0; n < 100; ++n) {
            const auto expected = start + first + n * period;
            REQUIRE(t.channel().recv() == expected);
            REQUIRE(vigil::clock::now() == expected);
          }
          CHECK(t.missed() == 0);
          ++ended;
        });
      }
      sleep_for(1s);
      CHECK(ended == 100);
    });
  }
}
