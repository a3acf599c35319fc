#include "core/sync/sync_test.hpp"

#include <vigil/rate_limiter.hpp>

#include <cstddef>
#include <limits>
#include <type_traits>

using namespace vigil::testing_support;
using vigil::rate;
using vigil::rate_limiter;
using vigil::reservation;

TEST_SUITE("rate_limiter") {
  // Go: rate: TestLimiterBurst1, -Burst3.
  TEST_CASE("allows the burst at once, then one for each token that has come") {
    in_virtual([] {
      const auto t0 = clock::now();
      rate_limiter one(rate::per(10, 1s), 1);
      CHECK(one.allow_at(t0));
      CHECK_FALSE(one.allow_at(t0));
      CHECK_FALSE(one.allow_at(t0 + 100ms - 1ns));
      CHECK(one.allow_at(t0 + 100ms));
      CHECK_FALSE(one.allow_at(t0 + 100ms));
      CHECK_FALSE(one.allow_at(t0 + 200ms, 2));
      CHECK(one.allow_at(t0 + 200ms));

      rate_limiter three(rate::per(10, 1s), 3);
      CHECK(three.allow_at(t0, 2));
      CHECK_FALSE(three.allow_at(t0, 2));
      CHECK(three.allow_at(t0));
      CHECK_FALSE(three.allow_at(t0 + 100ms, 4));
      CHECK(three.allow_at(t0 + 100ms));
      CHECK_FALSE(three.allow_at(t0 + 200ms, 3));
      CHECK(three.allow_at(t0 + 300ms, 2));
      CHECK(three.allow_at(t0 + 10s, 3));  // full, but not more
      CHECK_FALSE(three.allow_at(t0 + 10s));
    });
  }

  // Go: rate: TestLimiterJumpBackwards.
  TEST_CASE("a time before the last one brings nothing and takes nothing back") {
    in_virtual([] {
      const auto t0 = clock::now() + 1s;
      rate_limiter l(rate::per(10, 1s), 3);
      CHECK(l.allow_at(t0 + 100ms));
      CHECK(l.allow_at(t0));
      CHECK(l.allow_at(t0));
      CHECK_FALSE(l.allow_at(t0));
      CHECK_FALSE(l.allow_at(t0 + 100ms));
      CHECK(l.allow_at(t0 + 200ms));
    });
  }

  // Go's tokens behave alike: the limiter's time does not go back.
  TEST_CASE("a time before the last one finds the tokens of the last one, once") {
    in_virtual([] {
      const auto t0 = clock::now();
      rate_limiter l(rate::per(1, 1h), 2);
      CHECK(l.allow_at(t0, 2));
      CHECK_FALSE(l.allow_at(t0));
      CHECK(l.reserve_at(t0 + 2h).time_to_act() == t0 + 2h);
      CHECK(l.allow_at(t0));
      CHECK_FALSE(l.allow_at(t0));
      CHECK_FALSE(l.allow_at(t0 + 2h));
      CHECK(l.allow_at(t0 + 3h));
    });
  }

  TEST_CASE("waits end at exact intervals, even at rates that are not whole nanoseconds") {
    in_virtual([] {
      const auto start = clock::now();
      rate_limiter l(rate::every(10ms), 1);
      for (int i = 0; i < 5; ++i) {
        l.wait();
        CHECK(since(start) == i * 10ms);
      }
      rate_limiter thirds(rate::per(3, 1s), 1);
      const auto begin = clock::now();
      for (int i = 0; i <= 3'000; ++i)
        thirds.wait();
      CHECK(since(begin) == 1'000s);  // no error accumulates
      rate_limiter slow(rate::per(1, 24h), 1);
      const auto morning = clock::now();
      slow.wait();
      slow.wait();
      CHECK(since(morning) == 24h);
    });
  }

  // Go: rate: TestSimultaneousRequests, TestLongRunningQPS.
  TEST_CASE("many fibers share the rate, first come, first served") {
    in_virtual([] {
      const auto start = clock::now();
      rate_limiter l(rate::every(1ms), 10);
      std::vector<std::int64_t> at;
      crowd all;
      for (int i = 0; i < 30; ++i) {
        all.add([&] {
          l.wait();
          at.push_back((clock::now() - start) / 1ms);
        });
        settle();
      }
      all.join();
      REQUIRE(at.size() == 30);
      for (std::size_t i = 0; i < 30; ++i)
        CHECK(at[i] == (i < 10 ? 0 : static_cast<std::int64_t>(i) - 9));
    });
  }

  // Go: rate: TestWaitSimple, -Timeout, TestZeroLimit, TestInf.
  TEST_CASE("a wait that could not end in time is false at once and takes nothing") {
    in_virtual([] {
      const auto start = clock::now();
      rate_limiter l(rate::every(10ms), 1);
      CHECK(l.wait_for(0ms));
      CHECK_FALSE(l.wait_for(9ms));
      CHECK_FALSE(l.wait_for(-1h));
      CHECK_FALSE(l.wait_until(start + 10ms - 1ns));
      CHECK(since(start) == 0ms);
      CHECK(l.tokens() == 0);
      CHECK(l.wait_for(10ms));
      CHECK(since(start) == 10ms);
      CHECK(l.wait_until(start + 1h));
      CHECK(since(start) == 20ms);
    });
  }

  // Go: rate: TestReserve..., TestCancel....
  TEST_CASE("a reservation has a time, and its cancel returns tokens that nobody counts on") {
    in_virtual([] {
      const auto t0 = clock::now();
      rate_limiter l(rate::per(10, 1s), 2);
      const reservation now = l.reserve(2);
      REQUIRE(static_cast<bool>(now));
      CHECK(now.time_to_act() == t0);
      CHECK(now.delay() == 0ns);
      reservation later = l.reserve(2);
      CHECK(later.delay() == 200ms);
      CHECK(l.tokens() == -2);
      later.cancel();
      CHECK(l.tokens() == 0);
      later.cancel();  // once only
      CHECK(l.tokens() == 0);

      // Go's TestCancelMulti: tokens that later reservations count on stay taken.
      reservation first = l.reserve(2);
      const reservation second = l.reserve();
      CHECK(second.delay() == 300ms);
      first.cancel();
      CHECK(l.tokens() == -2);
      CHECK(l.reserve().time_to_act() == t0 + 300ms);

      sleep_for(1h);
      reservation past = l.reserve();
      past.cancel();  // its time has come
      CHECK(l.tokens() == 1);
      CHECK_FALSE(static_cast<bool>(l.reserve(3)));  // more than the burst
      CHECK(l.reserve(3).time_to_act() == clock::time_point::max());
      CHECK(l.tokens() == 1);
    });
  }

  TEST_CASE("a reservation can be moved, not copied, and a moved-from one returns nothing") {
    static_assert(!std::is_copy_constructible_v<reservation>);
    static_assert(!std::is_copy_assignable_v<reservation>);
    static_assert(std::is_nothrow_move_constructible_v<reservation>);
    in_virtual([] {
      const auto t0 = clock::now();
      rate_limiter l(rate::every(1h), 1);
      CHECK(l.allow());
      reservation first = l.reserve();
      reservation it = std::move(first);
      first.cancel();  // NOLINT(bugprone-use-after-move): it holds nothing
      CHECK_FALSE(static_cast<bool>(first));
      CHECK(first.time_to_act() == clock::time_point::max());
      CHECK(l.tokens() == -1);
      CHECK(it.time_to_act() == t0 + 1h);
      first = std::move(it);
      it.cancel();  // NOLINT(bugprone-use-after-move): as above
      CHECK(l.tokens() == -1);
      first.cancel();
      CHECK(l.tokens() == 0);
    });
  }

  TEST_CASE("a wait at a rate of zero goes on at the rate that is set") {
    in_virtual([] {
      const auto start = clock::now();
      rate_limiter l(rate::per(0, 1s), 2);
      CHECK(l.allow(2));
      std::vector<std::int64_t> at;
      crowd all;
      for (int i = 0; i < 3; ++i) {
        all.add([&] {
          l.wait();
          at.push_back((clock::now() - start) / 1s);
        });
      }
      auto stopped = spawn([&] { l.wait(); });
      sleep_for(10s);
      CHECK_THROWS_AS(l.wait(vigil::with_timeout(vigil::background(), 1s).ctx), vigil::cancelled);
      CHECK(at.empty());
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      l.set_rate(rate::per(0, 1h));
      sleep_for(1s);
      CHECK(at.empty());
      l.set_rate(rate::every(1s));
      all.join();
      CHECK(at == std::vector<std::int64_t>{13, 14, 15});
      CHECK(l.tokens() == 0);

      l.set_rate(rate::per(0, 1s));
      all.add([&] { l.wait(); });
      auto too_many = spawn([&] { l.wait(2); });
      settle();
      l.set_burst(1);
      CHECK(holds(text_of<std::invalid_argument>([&] { too_many.join(); }), "more than the burst"));
      l.set_rate(rate::unlimited());
      all.join();
    });
  }

  TEST_CASE("a wait at a rate of zero keeps the context that it began with") {
    in_virtual([] {
      const auto start = clock::now();
      rate_limiter l(rate::per(0, 1s), 1);
      CHECK(l.allow());
      auto ctx = vigil::with_timeout(vigil::background(), 5s).ctx;
      auto f = spawn([&] { l.wait(ctx); });
      settle();
      ctx = vigil::context();
      for (int i = 0; i < 2; ++i) {
        l.set_burst(1);  // a change that helps no waiter
        settle();
      }
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(since(start) == 5s);
    });
  }

  TEST_CASE("a stop ends the wait and returns the tokens that it had reserved") {
    in_virtual([] {
      rate_limiter l(rate::every(1h), 1);
      l.wait();
      auto f = spawn([&] { l.wait(); });
      settle();
      CHECK(l.tokens() == -1);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(l.tokens() == 0);
    });
  }

  TEST_CASE("rate and burst can be changed; reservations keep their time") {
    in_virtual([] {
      const auto t0 = clock::now();
      rate_limiter l(rate::per(10, 1s), 10);
      CHECK(l.allow(10));
      const reservation r = l.reserve();
      CHECK(r.time_to_act() == t0 + 100ms);
      l.set_rate(rate::per(100, 1s));
      CHECK(l.reserve().time_to_act() == t0 + 20ms);
      CHECK(r.time_to_act() == t0 + 100ms);
      CHECK(l.limit() == rate::per(100, 1s));
      sleep_for(1s);
      l.set_burst(3);
      CHECK(l.burst() == 3);
      CHECK(l.tokens() == 3);
      l.set_rate(rate::unlimited());
      CHECK(l.allow(1'000'000));
      l.wait(std::numeric_limits<std::int64_t>::max());
      l.set_rate(rate::every(1s));
      CHECK(l.allow(3));
      CHECK_FALSE(l.allow());
    });
  }

  // Go: rate: TestWaitSimple, -Timeout, TestZeroLimit, TestInf.
  TEST_CASE("impossible requests are refused, and no token ever comes at a rate of zero") {
    in_virtual([] {
      CHECK_THROWS_AS(rate::per(-1, 1s), std::invalid_argument);
      CHECK_THROWS_AS(rate::per(1, 0s), std::invalid_argument);
      CHECK_THROWS_AS(rate::every(-1s), std::invalid_argument);
      CHECK_THROWS_AS(rate_limiter(rate::every(1s), -1), std::invalid_argument);
      rate_limiter l(rate::every(1s), 2);
      CHECK_THROWS_AS(l.allow(-1), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(l.reserve(-1)), std::invalid_argument);
      CHECK_THROWS_AS(l.set_burst(-1), std::invalid_argument);
      CHECK(holds(text_of<std::invalid_argument>([&] { l.wait(3); }), "more than the burst"));
      CHECK(l.allow(0));
      CHECK(l.tokens() == 2);
      rate_limiter none(rate::per(0, 1s), 1);
      CHECK(none.allow());
      CHECK_FALSE(none.allow_at(clock::time_point::max()));
      CHECK_FALSE(static_cast<bool>(none.reserve()));
      CHECK_FALSE(none.wait_for(1h));
      rate_limiter tight(rate::every(1s), 0);
      CHECK_FALSE(tight.allow());
    });
  }

  // Go: rate: TestWaitInf, overflow (TestAdvanceOverflow).
  TEST_CASE("the ends of the range neither wrap nor come early") {
    in_virtual([] {
      constexpr auto most = std::numeric_limits<std::int64_t>::max();
      rate_limiter l(rate::per(1, std::chrono::nanoseconds::max()), most);
      CHECK(l.allow(most));
      CHECK_FALSE(l.allow());
      CHECK_FALSE(static_cast<bool>(l.reserve(2)));
      CHECK_FALSE(l.wait_for(std::chrono::hours::max(), most));
      rate_limiter fast(rate::per(most, 1ns), most);
      CHECK(fast.allow(most));
      sleep_for(1ns);
      CHECK(fast.allow(most));
    });
  }

  TEST_CASE("a debt too great for a slower rate stays the greatest there is") {
    in_virtual([] {
      constexpr auto most = std::numeric_limits<std::int64_t>::max();
      const auto t = clock::now() + 1h;
      rate_limiter l(rate::per(most, 1ns), most);
      for (int i = 0; i < 8; ++i)
        CHECK(static_cast<bool>(l.reserve_at(t, most)));
      l.set_rate(rate::per(1, std::chrono::nanoseconds(most)));
      CHECK(l.tokens() < 0);
      CHECK_FALSE(l.allow_at(t, most / 2));
      CHECK_FALSE(l.allow_at(clock::time_point::max()));
      CHECK_FALSE(static_cast<bool>(l.reserve_at(t, most)));
      CHECK(l.tokens() < 0);
      l.set_rate(rate::per(most, 1ns));
      CHECK(l.tokens() < 0);
      l.set_rate(rate::unlimited());
      CHECK(l.allow());
    });
  }

  // Go: rate: TestSimultaneousRequests, TestLongRunningQPS.
  TEST_CASE("on threads and fibers no more events happen than the rate allows") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      const auto start = clock::now();
      rate_limiter l(rate::every(20us), 5);
      std::atomic<int> events{0};
      const auto work = [&] {
        for (int i = 0; i < 100; ++i) {
          l.wait();
          events.fetch_add(1);
        }
      };
      crowd all;
      all.add(work);
      all.add(work);
      std::thread outside(work);
      all.join();
      outside.join();
      CHECK(events == 300);
      CHECK(since(start) >= 295 * 20us);
    });
  }
}
