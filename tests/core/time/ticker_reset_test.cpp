// ticker: stop and reset.
#include "core/time/ticker_helpers.hpp"

#include <string>

using namespace vigil::testing_support;

TEST_SUITE("ticker") {
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

  TEST_CASE("stop is true while it ticks, even with a tick due, which is then gone") {
    in_virtual([] {
      ticker t(1s);
      CHECK(t.stop());
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.reset(1s));
      sleep_for(2500ms);
      CHECK(t.stop());
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.deadline() == instant::max());
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
      CHECK(t.missed() == 0);  // a stopped tick was not missed
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

  // A closed channel would give a waiting fiber a false tick.
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
}
