#include "support/in_runtime.hpp"

#include <memory>
#include <stdexcept>
#include <string>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using std::chrono::nanoseconds;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::sleep_for;
using vigil::sleep_until;
using vigil::tick;
using vigil::ticker;
using vigil::timer_receiver;
using vigil::testing::settle;
using instant = vigil::clock::time_point;
using times = std::vector<nanoseconds>;

constexpr instant no_deadline = instant::max();

// The next n ticks, as distances from `start`; each is received at its own
// instant or later.
times ticks_of(const timer_receiver& from, int n, instant start) {
  times got;
  for (int i = 0; i < n; ++i) {
    const instant value = from.recv().value();
    CHECK(value <= vigil::clock::now());
    got.push_back(value - start);
  }
  return got;
}

}  // namespace

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

  // Go: TestTicker.
  TEST_CASE("reset gives another period counted from now, and stop ends the ticks") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(20ms);
      CHECK(ticks_of(t.channel(), 3, start) == times{20ms, 40ms, 60ms});
      sleep_for(5ms);
      CHECK(t.reset(40ms));
      CHECK(t.deadline() == start + 105ms);
      CHECK(ticks_of(t.channel(), 3, start) == times{105ms, 145ms, 185ms});
      CHECK(t.stop());
      CHECK(t.channel().recv_for(80ms).is_timeout());
      CHECK_FALSE(t.channel().try_recv());
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

  // Go: TestTickTimes; the period rule and its example.
  // Go: TestTickTimes; period arithmetic, its example, slow receiver; first tick
  // at once, missed ticks, next tick moved.
  TEST_CASE(
      "read late it hands over the first missed tick, drops the others, and keeps its phase") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(100ms);
      sleep_for(350ms);
      CHECK(t.deadline() == start + 100ms);  // due, not received
      CHECK(t.missed() == 0);                // counted when the late one is received
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
      // 10: free; at 35 that of 20 (30 dropped); at 60 that of 40 (50 and 60
      // dropped); at 85 that of 70 (80 dropped).
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
      // Go: TestOverflowPeriodRuntimeTimer.
      ticker once(1s, nanoseconds::max());
      CHECK(once.channel().recv() == start + 1h + 1s);
      CHECK(once.deadline() == no_deadline);
      CHECK(once.channel().recv_for(25ms).is_timeout());
      CHECK(since(start) == 1h + 1s + 25ms);
      CHECK(once.stop());
    });
  }

  // Go: TestNewTickerLtZeroDuration, TestTickerResetLtZeroDuration.
  TEST_CASE("a period of zero or less is refused and nothing changes") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      for (const nanoseconds bad : {0ns, -1ns, nanoseconds::min()}) {
        CHECK_THROWS_AS(ticker{bad}, std::invalid_argument);
        CHECK_THROWS_AS(ticker(1s, bad), std::invalid_argument);
      }
      ticker t(1s);
      for (const nanoseconds bad : {0ns, -1ns, nanoseconds::min()}) {
        CHECK_THROWS_AS(t.reset(bad), std::invalid_argument);
        CHECK_THROWS_AS(t.reset(5s, bad), std::invalid_argument);
      }
      try {
        t.reset(0s);
      } catch (const std::invalid_argument& e) {
        const std::string_view text = e.what();
        CHECK(text.find("vigil::ticker::reset") != text.npos);
        CHECK(text.find("longer than zero") != text.npos);
        CHECK(text.find("stop()") != text.npos);
      }
      CHECK(ticks_of(t.channel(), 2, start) == times{1s, 2s});
    });
  }

  TEST_CASE("stop is true while it ticks, also with a tick due, which is gone then") {
    in_virtual([] {
      ticker t(1s);
      CHECK(t.stop());
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.reset(1s));
      sleep_for(2500ms);
      CHECK(t.stop());
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.deadline() == no_deadline);
      CHECK_FALSE(t.reset(1s));
      t.channel().recv();
      CHECK(t.stop());  // it would go on ticking
    });
  }

  // Go: Ticker.Reset, Ticker.Stop.
  TEST_CASE("a stopped one is revived by reset, with a phase of its own") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(1s);
      sleep_for(2500ms);
      t.stop();
      sleep_for(100ms);
      CHECK_FALSE(t.reset(300ms));
      CHECK(ticks_of(t.channel(), 2, start) == times{2900ms, 3200ms});
      CHECK(t.missed() == 0);  // what was stopped was not missed
    });
  }

  // Go: Reset result; of a fired, unread one.
  TEST_CASE("reset throws away a tick that is due and not received") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      ticker t(1s);
      sleep_for(3500ms);
      CHECK(t.reset(1s));
      CHECK_FALSE(t.channel().try_recv());
      CHECK(ticks_of(t.channel(), 2, start) == times{4500ms, 5500ms});
      CHECK(t.missed() == 0);
    });
  }

  // Go: Ticker.Reset, Ticker.Stop.
  TEST_CASE("resets while a receiver is blocked: sooner, later, stopped between") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      ticker t(10s);
      auto f = vigil::spawn([&] { return ticks_of(t.channel(), 4, start); });
      sleep_for(1s);
      CHECK(t.reset(1s));   // 2, 3
      sleep_for(2500ms);    // 3.5
      CHECK(t.reset(20s));  // 23.5
      sleep_for(10s);       // 13.5
      CHECK(t.stop());
      sleep_for(100s);                  // 113.5
      CHECK_FALSE(t.reset(500ms, 2s));  // 114, 116
      CHECK(f.join() == times{2s, 3s, 114s, 116s});
    });
  }

  // Go: the channel is not closed, or a waiting fiber would see a false tick.
  // Go: Ticker.Reset, Ticker.Stop.
  TEST_CASE("stop leaves a blocked receiver blocked") {
    in_virtual([] {
      ticker t(1s);
      bool received = false;
      auto f = vigil::spawn([&, c = t.channel()] { received = c.recv().has_value(); });
      settle();
      CHECK(t.stop());
      CHECK_FALSE(f.join_for(1h));
      CHECK_FALSE(received);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
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
          vigil::spawn([own = std::move(t)] {}).join();  // dies on another fiber
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
          CHECK(vigil::stats().timers_pending == 1);  // of the main fiber's sleep
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

  // Go: TestDeadlockTicker differs: main's end ends the others.
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
