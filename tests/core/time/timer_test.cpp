#include "core/time/time_test.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace {

using namespace vigil::testing_support;
using vigil::after_func;

}  // namespace

TEST_SUITE("timer with a channel") {
  // Go: TestAfter; delivered value.
  TEST_CASE("hands over exactly its deadline, at exactly its deadline") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(after(100ms).recv() == start + 100ms);
      CHECK(since(start) == 100ms);
      timer t(1ns);
      CHECK(t.channel().recv() == start + 100ms + 1ns);
      CHECK(since(start) == 100ms + 1ns);
      CHECK(after(24h).recv() == start + 24h + 100ms + 1ns);
      CHECK(since(start) == 24h + 100ms + 1ns);
    });
  }

  // Go: TestAfterTick.
  TEST_CASE("ten in a row last exactly ten times as long as one") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      for (int i = 1; i <= 10; ++i)
        CHECK(after(10ms).recv() == start + i * 10ms);
      CHECK(since(start) == 100ms);
    });
  }

  // Go: TestTimerReadBeforeDeadline.
  TEST_CASE("waiting for it moves the clock by exactly its delay") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t(5s);
      sleep_for(2s);
      CHECK(t.channel().recv() == start + 5s);
      CHECK(since(start) == 5s);
    });
  }

  // Go: TestAfterTimes; TestTimerReadAfterDeadline, TestTimerRanInPast.
  TEST_CASE("read late it hands over the deadline, not the time of the look") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer blocking(1s);
      timer polled(1s);
      const auto dropped = after(10ms);
      sleep_for(2s);
      CHECK(polled.channel().try_recv().value() == start + 1s);
      CHECK(blocking.channel().recv() == start + 1s);
      CHECK(dropped.recv() == start + 10ms);
      CHECK(since(start) == 2s);
    });
  }

  // Go: TestTimerRunsImmediately; Reset to the past; zero or negative at creation.
  TEST_CASE("a zero or negative delay is received at once, even without waiting") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      sleep_for(1h);
      CHECK(timer(0s).channel().try_recv().value() == start + 1h);
      CHECK(timer(0s).channel().recv() == start + 1h);
      CHECK(after(0s).try_recv().value() == start + 1h);
      CHECK(after(-5s).try_recv().value() == start + 1h);
      CHECK(after(nanoseconds::min()).try_recv().value() == start + 1h);
      timer t(1h);
      CHECK(t.reset(-1ns));
      CHECK(t.channel().try_recv().value() == start + 1h);
      CHECK(since(start) == 1h);
    });
  }

  // Go: TestOverflowSleep (after).
  TEST_CASE("a delay beyond the range of the clock never comes and disturbs no other") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto never = after(nanoseconds::max());
      const auto soon = after(25ms);
      CHECK(vigil::select(on_recv(never), on_recv(soon)) == 1);
      CHECK(since(start) == 25ms);
      waiting forever(after(std::chrono::hours::max()));
      waiting last(timer(no_deadline - 1ns).channel());
      sleep_for(std::chrono::hours(24 * 365 * 100));
      CHECK_FALSE(forever.is_done);
      CHECK_FALSE(last.is_done);
      CHECK_FALSE(never.try_recv());
      for (waiting* w : {&forever, &last}) {
        w->leave();
      }
    });
  }

  // Go's NewTimer(1<<63-1).Stop() is true, and so is that of our after_func.
  // Go: TestOverflowSleep (after).
  TEST_CASE("one that is never due is pending all the same") {
    in_virtual([] {
      timer t(nanoseconds::max());
      CHECK(t.deadline() == no_deadline);
      CHECK(t.remaining() == nanoseconds::max());
      CHECK(t.reset(nanoseconds::max()));
      CHECK(t.stop());
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.reset(no_deadline));
      CHECK(t.reset(1s));
      CHECK(t.channel().recv().has_value());
      CHECK_FALSE(t.stop());
    });
  }

  // Go: TestAfterQueuing (chan).
  TEST_CASE("several are received in the order of their deadlines, each at its own") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      std::vector<int> order;
      for (const int slot : {5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0}) {
        vigil::go([&order, start, slot, c = after(slot * 20ms)] {
          CHECK(c.recv() == start + slot * 20ms);
          CHECK(since(start) == slot * 20ms);
          order.push_back(slot);
        });
      }
      sleep_for(1s);
      CHECK(order.size() == 13);
      CHECK(std::is_sorted(order.begin(), order.end()));
    });
  }

  // Go: TestAfterQueuing (chan).
  TEST_CASE("random ones, received early, late and not at all, hand over exactly theirs") {
    for_each_seed(10, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto start = vigil::clock::now();
      int received = 0;
      for (int i = 0; i < 300; ++i) {
        const nanoseconds delay(dice.below(1'000'000));
        const nanoseconds late(dice.below(1'000'000));
        vigil::go([&received, start, delay, late] {
          timer t(delay);
          sleep_for(late);
          CHECK(t.deadline() == start + delay);
          CHECK(t.remaining() == std::max(0ns, delay - late));
          CHECK(t.channel().recv() == start + delay);
          CHECK(since(start) == std::max(delay, late));
          CHECK_FALSE(t.channel().try_recv());
          ++received;
        });
      }
      sleep_for(1s);
      CHECK(received == 300);
    });
  }

  // Go: TestTimerNondeterminism.
  TEST_CASE("equal deadlines come in either order and the seed decides which") {
    std::set<std::vector<int>> orders;
    std::set<std::size_t> chosen;
    for_each_seed(60, [&] {
      std::vector<int> order;
      const auto deadline = vigil::clock::now() + 1s;
      for (int i = 0; i < 3; ++i) {
        vigil::go([&order, i, t = timer(deadline)] {
          t.channel().recv();
          order.push_back(i);
        });
      }
      chosen.insert(vigil::select(on_recv(after(1s)), on_recv(after(1s))));
      sleep_for(1s);
      orders.insert(order);
    });
    CHECK(orders.size() == 6);
    CHECK(chosen.size() == 2);
  }

  // Go: TestTimerNondeterminism.
  TEST_CASE("a select takes one of two that are due at one instant and leaves the other") {
    for_each_seed(30, [] {
      const auto start = vigil::clock::now();
      timer a(1s);
      timer b(1s);
      const std::size_t first = vigil::select(on_recv(a.channel()), on_recv(b.channel()));
      CHECK(since(start) == 1s);
      timer& taken = first == 0 ? a : b;
      timer& left = first == 0 ? b : a;
      CHECK_FALSE(taken.channel().try_recv());
      CHECK_FALSE(taken.stop());
      sleep_for(1s);
      CHECK(left.channel().try_recv().value() == start + 1s);
    });
  }

  TEST_CASE("in two cases of one select it is received once") {
    for_each_seed(20, [] {
      int received = 0;
      timer t(1s);
      const auto count = [&](std::optional<instant> v) { received += v.has_value() ? 1 : 0; };
      vigil::select(on_recv(t.channel(), count), on_recv(t.channel(), count));
      CHECK(received == 1);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(pending() == 0);
    });
  }

  // Go: TestChan 3; channel: capacity, length.
  TEST_CASE("has capacity and size zero, whatever is due") {
    for_timer_and_ticker([](auto t, bool) {
      CHECK(t.channel().capacity() == 0);
      CHECK(t.channel().size() == 0);
      t.reset(1ns);
      sleep_for(10ms);
      CHECK(t.channel().capacity() == 0);
      CHECK(t.channel().size() == 0);
      CHECK(t.channel().try_recv());
      CHECK(t.channel().size() == 0);
    });
  }

  TEST_CASE("is not closed when its value is gone") {
    in_virtual([] {
      timer t(1s);
      t.channel().recv();
      const auto none = t.channel().try_recv();
      CHECK(none.status() == vigil::channel_status::not_ready);
      CHECK_FALSE(none.is_closed());
      CHECK(t.channel().recv_for(1h).is_timeout());
    });
  }

  // Go: clock, WithDeadline(t).
  TEST_CASE("takes a deadline of any clock, and the past at its own instant") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(timer(start + 7s).channel().recv() == start + 7s);
      CHECK(timer(start + 1s).channel().try_recv().value() == start + 1s);
      const auto middle = vigil::clock::now();
      timer steady(std::chrono::steady_clock::now() + 1h);
      timer wall(std::chrono::system_clock::now() + 1h);
      for (timer* t : {&steady, &wall}) {
        CHECK(t->deadline() > middle + 59min);
        CHECK(t->deadline() <= middle + 1h);
      }
      timer never(no_deadline);
      CHECK_FALSE(never.channel().recv_for(1h));
    });
  }

  TEST_CASE("rounds a fraction of a nanosecond up and refuses a duration that is not a number") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(after(std::chrono::duration<double, std::nano>(0.25)).recv() == start + 1ns);
      const std::chrono::duration<double> nan(std::numeric_limits<double>::quiet_NaN());
      CHECK_THROWS_AS(timer{nan}, std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(after(nan)), std::invalid_argument);
      timer t(1s);
      CHECK_THROWS_AS(t.reset(nan), std::invalid_argument);
      CHECK(t.channel().recv() == start + 1s + 1ns);
    });
  }

  TEST_CASE("belongs to any holder of its channel: a fiber started with it, or another") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      auto handed = vigil::make_channel<timer_receiver>();
      auto result = vigil::make_channel<instant>();
      vigil::go([=] { result.send(handed.recv()->recv().value()); });
      handed.send(after(3s));
      CHECK(result.recv() == start + 3s);
    });
  }

  TEST_CASE("its receiver may be stopped, and the next one gets the value") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t(10s);
      waiting first(t.channel());
      settle();
      waiting second(t.channel());
      sleep_for(1s);
      first.leave();
      second.fiber.join();
      CHECK(second.value == start + 10s);
      CHECK(second.at == start + 10s);
    });
  }
}

TEST_SUITE("timer with a channel: deadline and remaining") {
  // Go: first tick at once, missed ticks, next tick moved.
  TEST_CASE("tell the time to come, that of a due value, and the maximum if there is neither") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t(10s);
      CHECK(t.deadline() == start + 10s);
      CHECK(t.remaining() == 10s);
      sleep_for(4s);
      CHECK(t.remaining() == 6s);
      sleep_for(7s);
      CHECK(t.deadline() == start + 10s);  // due, not received
      CHECK(t.remaining() == 0s);
      t.channel().recv();
      CHECK(t.deadline() == no_deadline);
      CHECK(t.remaining() == nanoseconds::max());
      t.reset(1s);
      CHECK(t.deadline() == start + 12s);
      t.stop();
      CHECK(t.deadline() == no_deadline);
      CHECK(t.remaining() == nanoseconds::max());
      CHECK(timer().deadline() == no_deadline);
      CHECK(timer().remaining() == nanoseconds::max());
    });
  }

  TEST_CASE("slack lets a blocked receiver wait longer, and never a look") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t(10ms);
      t.set_slack(5ms);
      CHECK(t.deadline() == start + 10ms);
      CHECK(t.channel().recv() == start + 10ms);
      CHECK(since(start) == 15ms);
      t.reset(10ms);
      sleep_for(10ms);
      CHECK(t.channel().try_recv().value() == start + 25ms);
      t.set_slack(-1s);
      t.reset(1ms);
      CHECK(t.channel().recv() == start + 26ms);
      CHECK(since(start) == 26ms);
    });
  }
}
