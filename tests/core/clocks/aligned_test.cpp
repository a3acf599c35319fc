#include "core/clocks/clock_channel.hpp"
#include "core/clocks/clocks_test.hpp"

namespace {

using namespace vigil::testing_support;
using times = std::vector<wall_time>;

times ticks_of(const vigil::aligned_ticker& t, int n) {
  times got;
  for (int i = 0; i < n; ++i) {
    got.push_back(*t.channel().recv());
    CHECK(wall_clock::now() == got.back());
  }
  return got;
}

}  // namespace

TEST_SUITE("aligned tickers") {
  TEST_CASE("ticks on each full second, and the value is that second") {
    in_virtual([] {
      vigil::sleep_for(300ms);
      const auto t = vigil::ticker::aligned(1s);
      CHECK(t.deadline() == wall_start + 1s);
      CHECK(ticks_of(t, 3) == times{wall_start + 1s, wall_start + 2s, wall_start + 3s});
      CHECK(t.missed() == 0);
      CHECK(in_heap() == 0);
    });
  }

  TEST_CASE("made on a full period it ticks at the next one") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(1h);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(ticks_of(t, 2) == times{wall_start + 1h, wall_start + 2h});
    });
  }

  TEST_CASE("a period is full when the time since 1970 is a multiple of it") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(7min);
      const auto first = *t.channel().recv();
      CHECK(first.time_since_epoch() % 7min == 0s);
      CHECK(first - wall_start < 7min);
      CHECK(ticks_of(t, 1) == times{first + 7min});
    });
    CHECK(vigil::detail::next_full(0, 10) == 10);
    CHECK(vigil::detail::next_full(9, 10) == 10);
    CHECK(vigil::detail::next_full(10, 10) == 20);
    CHECK(vigil::detail::next_full(-1, 10) == 0);
    CHECK(vigil::detail::next_full(-10, 10) == 0);
    CHECK(vigil::detail::next_full(-11, 10) == -10);
    CHECK(vigil::detail::next_full(INT64_MIN, 10) <= INT64_MIN + 18);
    CHECK(vigil::detail::next_full(INT64_MAX - 1, 10) == INT64_MAX - 1);
    CHECK(vigil::detail::next_full(5, INT64_MAX) == INT64_MAX - 1);
  }

  TEST_CASE("a late receiver gets the last full period, and those before it are counted") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(1s);
      vigil::sleep_for(3500ms);
      CHECK(t.missed() == 0);
      CHECK(t.channel().try_recv().value() == wall_start + 3s);
      CHECK(t.missed() == 2);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(ticks_of(t, 1) == times{wall_start + 4s});
      CHECK(t.missed() == 2);
    });
  }

  TEST_CASE("after a step forwards over several periods it ticks once") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      const auto t = vigil::ticker::aligned(1s);
      times got;
      auto receiver = vigil::spawn([&] {
        for (int i = 0; i < 3; ++i)
          got.push_back(*t.channel().recv());
      });
      vigil::sleep_for(1500ms);
      step_wall(10s);  // from 1.5 to 11.5 seconds
      settle();
      CHECK(got == times{wall_start + 1s, wall_start + 11s});
      CHECK(t.missed() == 9);
      receiver.join();
      CHECK(got.back() == wall_start + 12s);
      CHECK(since(start) == 2s);
    });
  }

  TEST_CASE("after a step backwards it ticks at the next full period") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      const auto t = vigil::ticker::aligned(1s);
      times got;
      auto receiver = vigil::spawn([&] {
        for (int i = 0; i < 3; ++i)
          got.push_back(*t.channel().recv());
      });
      vigil::sleep_for(1500ms);
      step_wall(-1h);
      receiver.join();
      CHECK(got == times{wall_start + 1s, wall_start - 1h + 2s, wall_start - 1h + 3s});
      CHECK(since(start) == 3s);
      CHECK(t.missed() == 0);
    });
  }

  TEST_CASE("a step backwards by less than a period may bring a value twice") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(1s);
      CHECK(ticks_of(t, 1) == times{wall_start + 1s});
      step_wall(-300ms);
      CHECK(ticks_of(t, 2) == times{wall_start + 1s, wall_start + 2s});
      vigil::sleep_for(700ms);
      step_wall(-300ms);  // from 2.7 to 2.4: the next one is the same
      CHECK(ticks_of(t, 1) == times{wall_start + 3s});
    });
  }

  TEST_CASE("steps that nobody waits through are seen by the next look") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(1min);
      step_wall(-24h);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.deadline() == wall_start - 24h + 1min);
      CHECK(ticks_of(t, 1) == times{wall_start - 24h + 1min});
      suspend_for(10min);
      CHECK(t.channel().try_recv().value() == wall_start - 24h + 11min);
      CHECK(t.missed() == 9);
    });
  }

  TEST_CASE("stop and reset, as those of a ticker") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(1s);
      vigil::sleep_for(1500ms);
      CHECK(t.stop());  // the due tick is gone
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.deadline() == wall_time::max());
      CHECK_FALSE(t.reset(1min));
      CHECK(t.reset(1h));
      CHECK(ticks_of(t, 2) == times{wall_start + 1h, wall_start + 2h});
      CHECK_THROWS_AS(t.reset(0s), std::invalid_argument);
      CHECK(t.deadline() == wall_start + 3h);
      for (const auto none : {0ns, -1ns, std::chrono::nanoseconds::min()})
        CHECK_THROWS_AS(vigil::ticker::aligned(none), std::invalid_argument);
      const vigil::aligned_ticker empty;
      CHECK_FALSE(static_cast<bool>(empty));
      CHECK_FALSE(empty.stop());
      CHECK(empty.missed() == 0);
      CHECK_THROWS_AS(empty.reset(1s), std::logic_error);
    });
  }

  TEST_CASE("a period beyond the clock's range is never full") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(std::chrono::hours::max());
      CHECK(t.deadline() == wall_time::max());
      CHECK(t.channel().recv_for(1h).is_timeout());
      CHECK(t.stop());
    });
  }

  TEST_CASE("several receivers share the ticks") {
    in_virtual([] {
      const auto t = vigil::ticker::aligned(1s);
      times got;
      std::vector<vigil::fiber<>> receivers;
      for (int i = 0; i < 5; ++i)
        receivers.push_back(vigil::spawn([&] { got.push_back(*t.channel().recv()); }));
      vigil::sleep_for(2500ms);
      step_wall(-1h);
      for (auto& r : receivers)
        r.join();
      CHECK(got == times{wall_start + 1s,
                         wall_start + 2s,
                         wall_start - 1h + 3s,
                         wall_start - 1h + 4s,
                         wall_start - 1h + 5s});
    });
  }
}
