#include "core/time/time_test.hpp"

#include <algorithm>

using namespace vigil::testing_support;

TEST_SUITE("the heap and timers with a channel") {
  // Go: TestTimerGC.
  TEST_CASE("holds nothing for timers on which nobody waits, however many are made and dropped") {
    in_virtual([] {
      const auto before = vigil::stats();
      std::vector<timer> timers;
      std::vector<ticker> tickers;
      std::vector<timer_receiver> channels;
      for (int i = 0; i < 1000; ++i) {
        timers.emplace_back(1h);
        tickers.emplace_back(1h);
        channels.push_back(after(1h));
        channels.push_back(vigil::tick(1h));
        timers[static_cast<std::size_t>(i)].reset(2h);
        if (i % 2 == 0) tickers.back().stop();
        static_cast<void>(channels.back().try_recv());
      }
      const auto then = vigil::stats();
      CHECK(then.timers_armed == before.timers_armed);
      CHECK(then.timers_reset == before.timers_reset);
      CHECK(then.timers_pending == 0);
      CHECK(then.heap_entries == before.heap_entries);
      timers.clear();
      tickers.clear();
      channels.clear();
      sleep_for(24h);
      CHECK(vigil::stats().timers_armed == before.timers_armed + 1);  // the one of that sleep
      CHECK(vigil::stats().timers_fired == before.timers_fired + 1);
    });
  }

  TEST_CASE("holds one entry while somebody waits, and none as soon as nobody does") {
    for_timer_and_ticker([](auto t, bool) {
      const auto base = vigil::stats().heap_entries;
      CHECK(pending() == 0);
      waiting w(t.channel());
      CHECK(pending() == 0);  // the fiber has not run yet
      settle();
      CHECK(pending() == 1);
      CHECK(vigil::stats().heap_entries == base + 1);
      w.leave();
      CHECK(pending() == 0);
      waiting again(t.channel());
      settle();
      CHECK(pending() == 1);
      again.fiber.join();
      CHECK(again.is_done);
      CHECK(pending() == 0);
    });
  }

  TEST_CASE("holds one entry for all waiters on one timer, until the last has left") {
    for_timer_and_ticker([](auto t, bool) {
      std::vector<std::unique_ptr<waiting>> receivers;
      for (int i = 0; i < 3; ++i)
        receivers.push_back(std::make_unique<waiting>(t.channel()));
      const auto leave = [&](std::size_t i) { receivers[i]->leave(); };
      settle();
      CHECK(pending() == 1);
      leave(1);
      CHECK(pending() == 1);
      leave(0);
      CHECK(pending() == 1);
      const auto start = vigil::clock::now();
      receivers[2]->fiber.join();  // the remaining receiver is served
      CHECK(receivers[2]->at == start + 10'000s);
      CHECK(pending() == 0);
    });
    for_timer_and_ticker([](auto t, bool) {
      waiting a(t.channel());
      waiting b(t.channel());
      settle();
      for (waiting* w : {&a, &b}) {
        CHECK(pending() == 1);
        w->leave();
      }
      CHECK(pending() == 0);
    });
  }

  TEST_CASE("keeps the entry for the others when a receiver of a one-shot is served") {
    for_each_seed(10, [] {
      timer t(1s);
      waiting a(t.channel());
      waiting b(t.channel());
      sleep_for(2s);
      CHECK(a.is_done != b.is_done);
      CHECK(pending() == 0);  // nothing is to come
      waiting& left = a.is_done ? b : a;
      t.reset(5s);
      CHECK(pending() == 1);
      left.fiber.join();
      CHECK(left.is_done);
      CHECK(pending() == 0);
    });
  }

  TEST_CASE("forgets the timer of a select whose other case wins") {
    for_timer_and_ticker([](auto t, bool) {
      const auto values = vigil::make_channel<int>();
      std::size_t taken = 9;
      auto f = vigil::spawn(
          [&, values, c = t.channel()] { taken = vigil::select(on_recv(c), on_recv(values)); });
      settle();
      CHECK(pending() == 1);
      values.send(1);
      f.join();
      CHECK(taken == 1);
      CHECK(pending() == 0);
    });
    in_virtual([] {
      const auto values = vigil::make_channel<int>();
      auto f = vigil::spawn([&, values] {
        return vigil::select(
            on_recv(values), on_recv(after(1h)), on_recv(vigil::tick(1h)), on_timeout(1h));
      });
      settle();
      CHECK(pending() == 3);
      values.send(1);
      CHECK(f.join() == 0);
      CHECK(pending() == 0);
    });
  }

  TEST_CASE("forgets a timer that is stopped while a receiver stays, and takes a reset one back") {
    for_timer_and_ticker([](auto t, bool) {
      waiting w(t.channel());
      settle();
      CHECK(pending() == 1);
      t.stop();
      CHECK(pending() == 0);
      t.reset(1h);
      CHECK(pending() == 1);
      t.reset(2h);
      CHECK(pending() == 1);
      t.stop();
      w.leave();
      CHECK(pending() == 0);
    });
  }

  TEST_CASE("files nothing new when a blocked receiver's timer moves later") {
    in_virtual([] {
      timer t(1h);
      waiting w(t.channel());
      settle();
      const auto entries = vigil::stats().heap_entries;
      for (int i = 1; i <= 1000; ++i)
        CHECK(t.reset(1h + i * 1s));
      CHECK(vigil::stats().heap_entries == entries);
      CHECK(vigil::stats().timers_armed == 1);
      t.stop();
      w.leave();
    });
  }

  // Go: a select with a ready value costs no heap work.
  TEST_CASE("is not touched by a select or a receive with a deadline that finds a value") {
    in_virtual([] {
      const auto values = vigil::make_channel<int>(1);
      const auto before = vigil::stats();
      for (int i = 0; i < 1000; ++i) {
        values.send(i);
        CHECK(vigil::select(on_recv(values), on_timeout(1s)) == 0);
        values.send(i);
        CHECK(vigil::select(on_recv(values), on_recv(after(1s))) == 0);
        values.send(i);
        CHECK(values.recv_for(1s).value() == i);
      }
      const auto now = vigil::stats();
      CHECK(now.timers_armed == before.timers_armed);
      CHECK(now.heap_entries == before.heap_entries);
      CHECK(now.switches == before.switches);
    });
  }

  TEST_CASE("stays small when waits are answered before their time again and again") {
    in_virtual([] {
      const auto values = vigil::make_channel<int>();
      const int n = rounds(20'000);
      auto f = vigil::spawn([&] {
        std::uint64_t most = 0;
        for (int i = 0; i < n; ++i) {
          CHECK(values.recv_for(1h).value() == i);
          CHECK(vigil::select(on_recv(values), on_recv(after(1h))) == 0);
          most = std::max(most, vigil::stats().heap_entries);
        }
        return most;
      });
      for (int i = 0; i < n; ++i) {
        values.send(i);
        values.send(i);
      }
      CHECK(f.join() < 4000);  // the number of dead entries is bounded
      CHECK(pending() == 0);
    });
  }

  // Go: a ticker nobody waits on hides no deadlock.
  TEST_CASE("a ticker on which nobody waits hides no deadlock; a wait on one is none") {
    CHECK_THROWS_AS(vigil::testing::run_virtual([] {
                      const ticker beat(1s);
                      const auto later = after(1h);
                      vigil::make_channel<int>().recv();
                    }),
                    vigil::deadlock);
    CHECK_THROWS_AS(vigil::testing::run_virtual([] {
                      timer t(1h);
                      t.stop();
                      t.channel().recv();  // nobody can start it again
                    }),
                    vigil::deadlock);
    in_virtual([] {
      const ticker beat(1s);
      for (int i = 0; i < 1000; ++i)
        beat.channel().recv();
    });
  }
}
