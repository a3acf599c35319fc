#include "core/time/timer_stress.hpp"

#include <algorithm>

#include <malloc.h>

namespace {

using namespace vigil::testing_support;

template <class F>
void for_both(F body) {
  body(timer(5h));
  body(ticker(5h));
}

[[maybe_unused]] std::size_t bytes_in_use() {
  return ::mallinfo2().uordblks;
}

}  // namespace

TEST_SUITE("memory of timers with channels") {
  // go#8898.
  // Go: TestTimerGC.
  TEST_CASE("ten thousand made and dropped, running, stopped and reset, leave nothing") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_virtual([] {
      const auto make_all = [] {
        for (int i = 0; i < 10'000; ++i) {
          static_cast<void>(after(1h));
          static_cast<void>(vigil::tick(1h));
          timer t(1h);
          ticker k(1h);
          if (i % 2 == 0) t.stop();
          if (i % 3 == 0) k.stop();
          if (i % 5 == 0) t.reset(0s);
          if (i % 7 == 0) k.reset(1ns);
          if (i % 11 == 0) static_cast<void>(vigil::select(on_recv(t.channel()), on_timeout(1ns)));
        }
      };
      make_all();
      const std::size_t before = bytes_in_use();
      make_all();
      CHECK(bytes_in_use() <= before + 16 * 1024);
      CHECK(vigil::stats().heap_entries <= 4'000);
    });
#endif
  }

  // Each arming holds a handle of the channel until it ends.
  TEST_CASE("nothing is left of timer and channel, whatever ends the wait of a receiver") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_virtual([] {
      const auto wait_in_every_way = [] {
        for (int i = 0; i < 200; ++i) {
          for_both([&](auto t) {
            waiting w(t.channel());
            vigil::testing::settle();
            if (i % 2 == 0) t.reset(1h);  // sooner
            if (i % 3 == 0) t.reset(10h);
            if (i % 5 == 0) t.stop();
            if (i % 7 == 0) t.reset(30min);
            if (t.deadline() == no_deadline || i % 4 == 0) {
              w.leave();
            } else {
              sleep_for(24h);
              CHECK(w.is_done);
            }
            if (i % 3 == 1)
              CHECK(t.channel().recv_for(1ns).status() != vigil::channel_status::closed);
          });
        }
      };
      for (int i = 0; i < 20; ++i)
        wait_in_every_way();  // the number of dead entries has reached its bound
      const std::size_t before = bytes_in_use();
      for (int i = 0; i < 20; ++i)
        wait_in_every_way();
      CHECK(bytes_in_use() <= before + 16 * 1024);
    });
#endif
  }

  // Go: a select with a ready value costs no heap work.
  TEST_CASE("is flat over a million selects that find a value beside an after") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_runtime({.workers = {1}}, [] {
      const auto values = vigil::make_channel<int>(1);
      const auto turn = [&](int i) {
        values.send(i);
        REQUIRE(vigil::select(on_recv(values), on_recv(after(1h))) == 0);
      };
      for (int i = 0; i < 1000; ++i)
        turn(i);
      const std::size_t before = bytes_in_use();
      const auto stats_before = vigil::stats();
      for (int i = 0; i < rounds(1'000'000); ++i)
        turn(i);
      CHECK(bytes_in_use() <= before + 4 * 1024);
      const auto now = vigil::stats();
      CHECK(now.timers_armed == stats_before.timers_armed);
      CHECK(now.heap_entries == stats_before.heap_entries);
      CHECK(now.stacks_in_use == stats_before.stacks_in_use);
    });
#endif
  }

  TEST_CASE("is flat over a hundred thousand selects that wait beside an after and a timeout") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_runtime({.workers = {1, 2}}, [] {
      const auto values = vigil::make_channel<int>();
      const int n = rounds(100'000);
      std::size_t before = 0;
      std::size_t most = 0;
      auto receiver = vigil::spawn([&] {
        for (int i = 0; i < n; ++i) {
          vigil::select(on_recv(values), on_recv(after(1h)), on_timeout(2h));
          if (i == n / 4) before = bytes_in_use();
          if (i > n / 4 && i % 1000 == 0) most = std::max(most, bytes_in_use());
        }
      });
      for (int i = 0; i < n; ++i)
        values.send(i);
      receiver.join();
      // The number of dead entries is bounded, and with it the memory they hold.
      CHECK(most <= before + 2 * 1024 * 1024);
      CHECK(pending() == 0);
    });
#endif
  }
}
