#include "core/time/time_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("timer with a channel: stop") {
  // Go: TestAfterStop (chan); Stop of a channel timer; twice.
  TEST_CASE("before the deadline is true and nothing comes, even after later timers") {
    in_virtual([] {
      timer a(50ms);
      timer b(150ms);
      CHECK(a.stop());
      CHECK(b.stop());
      CHECK(after(200ms).recv().has_value());
      CHECK_FALSE(a.channel().try_recv());
      CHECK_FALSE(b.channel().try_recv());
      CHECK_FALSE(a.stop());
      CHECK_FALSE(b.stop());
    });
  }

  // Go: TestChan 1.
  TEST_CASE("before anybody has waited leaves nothing to receive, however late") {
    for_timer_and_ticker([](auto t, bool) {
      CHECK(t.stop());
      CHECK_FALSE(t.channel().try_recv());
      sleep_for(30'000s);
      CHECK_FALSE(t.channel().try_recv());
      CHECK_FALSE(t.stop());
    });
  }

  // Nothing ever has to be drained (P4).
  // Go: TestChan 10; Stop of a channel timer; twice; draining is never needed.
  TEST_CASE("is true while the value is due and not received, and takes it away") {
    for_timer_and_ticker([](auto t, bool) {
      t.reset(1ns);
      sleep_for(10ms);
      CHECK(t.stop());
      CHECK_FALSE(t.channel().try_recv());
      CHECK_FALSE(t.stop());
      sleep_for(20'000s);
      CHECK_FALSE(t.channel().try_recv());
    });
  }

  // Go: Stop of a channel timer; twice.
  TEST_CASE("is false once the value has been received") {
    in_virtual([] {
      timer t(1s);
      t.channel().recv();
      CHECK_FALSE(t.stop());
      timer polled(0s);
      CHECK(polled.channel().try_recv());
      CHECK_FALSE(polled.stop());
    });
  }

  TEST_CASE("at the instant of the deadline is true exactly if the waiting fiber gets nothing") {
    for_each_seed(100, [] {
      timer t(1s);
      waiting w(t.channel());
      sleep_for(1s);  // wakes at the instant at which t is due
      const bool prevented = t.stop();
      sleep_for(1s);
      CHECK(w.is_done != prevented);
      if (prevented) {
        w.leave();
      }
    });
  }

  // The channel is not closed.
  // Go: Ticker.Reset, Ticker.Stop.
  TEST_CASE("does not end the wait of a receiver and does not close the channel") {
    for_timer_and_ticker([](auto t, bool) {
      waiting w(t.channel());
      settle();
      CHECK(t.stop());
      sleep_for(30'000s);
      CHECK_FALSE(w.is_done);
      CHECK_FALSE(t.channel().try_recv().is_closed());
      w.leave();
    });
  }

  TEST_CASE("and then reset, while a fiber is blocked: it gets the new deadline only") {
    for_timer_and_ticker([](auto t, bool) {
      waiting w(t.channel());
      settle();
      CHECK(t.stop());
      sleep_for(20'000s);
      CHECK_FALSE(w.is_done);
      const auto again = vigil::clock::now();
      CHECK_FALSE(t.reset(5s));
      w.fiber.join();
      CHECK(w.value == again + 5s);
      CHECK(w.at == again + 5s);
      t.stop();
    });
  }

  // Go: TestChan 9.
  TEST_CASE("selects on a stopped one receive nothing until their other case ends them") {
    for_timer_and_ticker([](auto t, bool) {
      CHECK(t.stop());
      const auto end = vigil::make_channel<void>();
      int received = 0;
      int ended = 0;
      for (int i = 0; i < 2; ++i) {
        vigil::go([&, end, c = t.channel()] {
          vigil::select(on_recv(c, [&] { ++received; }), on_recv(end, [&] { ++ended; }));
        });
      }
      settle();
      CHECK(pending() == 0);  // nothing is armed for a stopped one
      sleep_for(30'000s);
      CHECK(received == 0);
      CHECK(ended == 0);
      end.close();
      settle();
      CHECK(received == 0);
      CHECK(ended == 2);
    });
  }
}

TEST_SUITE("timer with a channel: reset") {
  // Go: TestReset (chan).
  TEST_CASE("moves a pending one later and is true; is false for a received one") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t(20ms);
      sleep_for(10ms);
      CHECK(t.reset(30ms));
      sleep_for(20ms);
      CHECK_FALSE(t.channel().try_recv());
      sleep_for(20ms);
      CHECK(t.channel().try_recv().value() == start + 40ms);
      CHECK_FALSE(t.reset(50ms));
      CHECK(t.channel().recv() == start + 100ms);
    });
  }

  // Go: TestTimerReset.
  TEST_CASE("a chain of resets hands over each deadline in turn") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t(1s);
      CHECK(t.channel().recv() == start + 1s);
      CHECK_FALSE(t.reset(2s));
      CHECK(t.channel().recv() == start + 3s);
      CHECK_FALSE(t.reset(start + 7s));
      CHECK(t.channel().recv() == start + 7s);
    });
  }

  // Go: TestChan 2.
  TEST_CASE("of a stopped one to the far future leaves nothing to receive, and is false") {
    for_timer_and_ticker([](auto t, bool) {
      t.stop();
      CHECK_FALSE(t.reset(10'000s));
      CHECK_FALSE(t.channel().try_recv());
      sleep_for(9'999s);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.stop());
    });
  }

  // Go: TestChan 3.
  TEST_CASE("a value that came due while nobody was blocked is found by a look") {
    for_timer_and_ticker([](auto t, bool) {
      const auto now = vigil::clock::now();
      CHECK(t.reset(1ns));
      sleep_for(10ms);
      CHECK(t.channel().try_recv().value() == now + 1ns);
    });
  }

  // Go: TestChan 4.
  TEST_CASE("to the far future leaves nothing stale, due or not, received or not") {
    for_timer_and_ticker([](auto t, bool) {
      for (const nanoseconds late : {0ns, 1ns, 2ns, 10'000'000ns}) {
        for (const bool receive : {false, true}) {
          t.reset(1ns);
          sleep_for(late);
          if (receive && late != 0ns) CHECK(t.channel().try_recv());
          t.reset(10'000s);
          CHECK_FALSE(t.channel().try_recv());
          sleep_for(10s);
          CHECK_FALSE(t.channel().try_recv());
        }
      }
    });
  }

  // Go: TestChan 5.
  TEST_CASE("to an even farther deadline keeps a receiver blocked until that one") {
    for_timer_and_ticker([](auto t, bool) {
      const auto start = vigil::clock::now();
      waiting w(t.channel());
      sleep_for(5'000s);
      CHECK(t.reset(20'000s));
      sleep_until(start + 24'999s);
      CHECK_FALSE(w.is_done);
      w.fiber.join();
      CHECK(w.value == start + 25'000s);
      CHECK(w.at == start + 25'000s);
      t.stop();
    });
  }

  // Go: TestChan 6, 7.
  TEST_CASE("to an earlier deadline releases a blocked receiver then; only a ticker goes on") {
    for_timer_and_ticker([](auto t, bool ticks) {
      waiting w(t.channel());
      sleep_for(1s);
      const auto now = vigil::clock::now();
      CHECK(t.reset(1ns));
      w.fiber.join();
      CHECK(w.value == now + 1ns);
      CHECK(w.at == now + 1ns);
      if (ticks) {
        CHECK(t.channel().recv() == now + 2ns);
        CHECK(t.stop());
      } else {
        CHECK_FALSE(t.channel().recv_for(1h));
        CHECK_FALSE(t.stop());
      }
    });
  }

  TEST_CASE("to now releases a blocked receiver without moving the clock") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      timer t(1h);
      waiting w(t.channel());
      sleep_for(1s);
      CHECK(t.reset(0s));
      w.fiber.join();
      CHECK(w.value == start + 1s);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("back and forth while a receiver is blocked, only the last deadline counts") {
    for_each_seed(20, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto start = vigil::clock::now();
      timer t(1h);
      waiting w(t.channel());
      settle();
      nanoseconds last{};
      for (int i = 0; i < 100; ++i) {
        if (dice.below(4) == 0) t.stop();
        last = nanoseconds(1'000'000 + dice.below(1'000'000));
        t.reset(start + last);
        CHECK(t.deadline() == start + last);
        sleep_for(nanoseconds(dice.below(1000)));
      }
      w.fiber.join();
      CHECK(w.value == start + last);
      CHECK(w.at == start + last);
      CHECK(pending() == 0);
    });
  }

  // Go: TestChan 8.
  TEST_CASE("one of two selects on it gets the value, and both end by their other case") {
    for_timer_and_ticker([](auto t, bool ticks) {
      const auto end = vigil::make_channel<void>();
      int received = 0;
      int ended = 0;
      for (int i = 0; i < 2; ++i) {
        vigil::go([&, end, c = t.channel()] {
          bool on = true;
          while (on) {
            vigil::select(on_recv(c, [&] { ++received; }), on_recv(end, [&] { on = false; }));
          }
          ++ended;
        });
      }
      settle();
      CHECK(t.reset(5ms));
      sleep_for(5ms + 1ns);
      CHECK(received == 1);
      CHECK(t.stop() == ticks);
      sleep_for(1h);
      CHECK(received == 1);
      end.close();
      settle();
      CHECK(ended == 2);
    });
  }

  // The result of a ticker's reset is vigil's own.
  // Go: TestChan 11, 12; Reset result; of a fired, unread one.
  TEST_CASE("is true while pending or unreceived, false for a timer whose value was received") {
    for_timer_and_ticker([](auto t, bool ticks) {
      CHECK(t.reset(1h));
      CHECK(t.reset(1ns));
      sleep_for(10ms);
      CHECK(t.reset(1ns));  // due, not received
      const auto now = vigil::clock::now();
      CHECK(t.channel().recv() == now + 1ns);
      if (!ticks) CHECK_FALSE(t.channel().recv_for(10ms));
      CHECK(t.reset(1h) == ticks);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.stop());
    });
  }

  // Go: Reset to the past; zero or negative at creation.
  TEST_CASE("to a past point is due at once, to the maximum never") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t(1h);
      sleep_for(1s);
      CHECK(t.reset(start));
      CHECK(t.channel().try_recv().value() == start);
      t.reset(1s);
      waiting w(t.channel());
      settle();
      CHECK(t.reset(no_deadline));
      CHECK(t.deadline() == no_deadline);
      sleep_for(24h);
      CHECK_FALSE(w.is_done);
      t.reset(vigil::clock::now());
      w.fiber.join();
      CHECK(w.value == start + 24h + 1s);
    });
  }

  TEST_CASE("by the receiver of the value arms it again: a chain without a new timer") {
    for_each_seed(5, [] {
      const auto start = vigil::clock::now();
      timer t(1s);
      for (int i = 1; i <= 100; ++i) {
        CHECK(t.channel().recv() == start + i * 1s);
        CHECK_FALSE(t.reset(1s));
      }
      CHECK(since(start) == 100s);
    });
  }

  TEST_CASE("resets that come in time keep it from ever coming due") {
    in_virtual([] {
      timer idle(10ms);
      waiting w(idle.channel());
      for (int i = 0; i < 1000; ++i) {
        sleep_for(9ms);
        CHECK(idle.reset(10ms));
      }
      CHECK_FALSE(w.is_done);
      sleep_for(10ms);
      settle();
      CHECK(w.is_done);
    });
  }
}
