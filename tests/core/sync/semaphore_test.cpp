// semaphore: never more holders than permits, first come, first served.
#include "core/sync/sync_test.hpp"

#include <limits>

using namespace vigil::testing_support;
using vigil::semaphore;

TEST_SUITE("semaphore") {
  TEST_CASE("there are never more holders than permits") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      semaphore s(3);
      std::atomic<int> inside{0};
      std::atomic<int> most{0};
      const auto work = [&](std::uint64_t seed) {
        seeded dice(seed);
        for (int i = 0; i < rounds(1'000); ++i) {
          const int n = 1 + static_cast<int>(dice.below(3));
          if (dice.below(2) == 0) {
            s.acquire(n);
          } else if (!s.try_acquire_for(std::chrono::microseconds(dice.below(50)), n)) {
            continue;
          }
          const int now = inside.fetch_add(n) + n;
          CHECK(now <= 3);
          if (now > most) most = now;
          if (vigil::this_fiber::id() != 0) vigil::this_fiber::yield();
          inside.fetch_sub(n);
          s.release(n);
        }
      };
      crowd all;
      for (std::uint64_t i = 0; i < 6; ++i)
        all.add([&, i] { work(i + 1); });
      std::thread outside([&] { work(50); });
      all.join();
      outside.join();
      CHECK(s.available() == 3);
    });
  }

  TEST_CASE("a scoped_permit gives back however its scope is left") {
    in_virtual([] {
      semaphore s(3);
      {
        const vigil::scoped_permit one(s);
        const vigil::scoped_permit two(s, 2);
        CHECK(s.available() == 0);
        CHECK_FALSE(s.try_acquire());
      }
      CHECK(s.available() == 3);
      try {
        const vigil::scoped_permit one(s);
        throw 1;
      } catch (int) {
      }
      CHECK(s.available() == 3);
      auto f = spawn([&] {
        const vigil::scoped_permit all(s, 3);
        vigil::sleep_for(1h);
      });
      vigil::sleep_for(1s);
      CHECK(s.available() == 0);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(s.available() == 3);
    });
  }

  TEST_CASE("a scoped_permit waits for its turn, under a context too, and takes over") {
    in_virtual([] {
      semaphore s(1);
      const auto start = vigil::clock::now();
      auto f = spawn([&] {
        const vigil::scoped_permit one(s);
        vigil::sleep_for(1s);
      });
      vigil::testing::settle();
      const auto short_time = vigil::with_timeout(vigil::background(), 1ms);
      CHECK_THROWS_AS(static_cast<void>(vigil::scoped_permit(s, short_time.ctx)), vigil::cancelled);
      {
        const vigil::scoped_permit one(s);
        CHECK(vigil::clock::now() - start == 1s);
      }
      f.join();
      REQUIRE(s.try_acquire());
      vigil::scoped_permit taken(s, vigil::adopt_permit);
      auto g = spawn([moved = std::move(taken)] { vigil::sleep_for(1s); });
      CHECK(s.available() == 0);
      g.join();
      CHECK(s.available() == 1);
      CHECK_THROWS_AS(static_cast<void>(vigil::scoped_permit(s, -1)), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(vigil::scoped_permit(s, vigil::adopt_permit, -1)),
                      std::invalid_argument);
      CHECK(s.available() == 1);
    });
  }

  // Go: semaphore.Weighted: large ones do not starve; cancelled ones let others
  // go.
  TEST_CASE("first come, first served: many permits are not starved by requests for few") {
    for_each_seed(10, [] {
      semaphore s(2);
      s.acquire(2);
      std::vector<int> order;
      crowd all;
      const auto ask = [&](std::int64_t n) {
        all.add([&, n] {
          s.acquire(n);
          order.push_back(static_cast<int>(n));
          s.release(n);
        });
        settle();
      };
      ask(2);
      ask(1);
      ask(1);
      s.release(1);
      settle();
      CHECK(order.empty());  // one permit is free, but the first request wants two
      CHECK_FALSE(s.try_acquire());
      CHECK_FALSE(s.try_acquire_for(1ms));
      s.release(1);
      all.join();
      CHECK(order == std::vector{2, 1, 1});
      CHECK(s.available() == 2);
    });
  }

  // Go: semaphore.Weighted: large ones do not starve; cancelled ones let others
  // go.
  TEST_CASE("a waiter that gives up or is stopped lets those behind go on, and takes nothing") {
    in_virtual([] {
      semaphore s(1);
      const auto start = clock::now();
      auto large = spawn([&] { CHECK_FALSE(s.try_acquire_for(10ms, 5)); });
      settle();
      auto small = spawn([&] {
        s.acquire();
        CHECK(since(start) == 10ms);
        s.release();
      });
      small.join();
      large.join();
      auto never = spawn([&] { s.acquire(5); });
      settle();
      auto behind = spawn([&] { s.acquire(); });
      settle();
      never.request_stop();
      behind.join();
      CHECK_THROWS_AS(never.join(), vigil::cancelled);
      CHECK(s.available() == 0);
    });
  }

  TEST_CASE("zero permits are granted at once, negative numbers and too many are refused") {
    semaphore s(0);
    s.acquire(0);
    CHECK(s.try_acquire(0));
    CHECK_FALSE(s.try_acquire());
    CHECK_FALSE(s.try_acquire_for(0ms));
    CHECK_THROWS_AS(s.acquire(-1), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(s.try_acquire(-1)), std::invalid_argument);
    CHECK(holds(text_of<std::invalid_argument>([&] { s.release(-1); }), "negative"));
    CHECK_THROWS_AS(semaphore(-1), std::invalid_argument);
    s.release(std::numeric_limits<std::int64_t>::max());
    CHECK_THROWS_AS(s.release(), std::overflow_error);
    CHECK(s.available() == std::numeric_limits<std::int64_t>::max());
    CHECK(s.try_acquire_until(clock::now(), std::numeric_limits<std::int64_t>::max()));
  }

  TEST_CASE("a timed request is false at exactly its deadline") {
    in_virtual([] {
      semaphore s(0);
      const auto start = clock::now();
      CHECK_FALSE(s.try_acquire_for(10ms));
      CHECK_FALSE(s.try_acquire_until(start + 20ms));
      CHECK(since(start) == 20ms);
      vigil::after_func(5ms, [&] { s.release(); });
      CHECK(s.try_acquire_for(1h));
      CHECK(since(start) == 25ms);
    });
  }
}
