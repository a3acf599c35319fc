// latch: a count that falls to zero once.
#include "core/sync/sync_test.hpp"

#include <limits>

using namespace vigil::testing_support;
using vigil::latch;

TEST_SUITE("latch") {
  TEST_CASE("readies all waiters when it has come to zero, and stays open") {
    in_virtual([] {
      latch l(3);
      crowd all;
      for (int i = 0; i < 3; ++i)
        all.add([&] { l.arrive_and_wait(); });
      l.wait();
      all.join();
      CHECK(l.try_wait());
      l.wait();
      CHECK(l.wait_for(-1ms));
    });
  }

  TEST_CASE("arriving and waiting under a context counts as an arrival, however the wait ends") {
    in_virtual([] {
      latch l(3);
      const auto start = clock::now();
      const auto it = vigil::with_timeout(vigil::background(), 1s);
      CHECK_THROWS_AS(l.arrive_and_wait(it.ctx), vigil::cancelled);
      CHECK(since(start) == 1s);
      CHECK(l.count() == 2);
      CHECK_THROWS_AS(l.arrive_and_wait(vigil::context()), std::invalid_argument);
      CHECK_THROWS_AS(l.arrive_and_wait(3, it.ctx), std::logic_error);
      CHECK(l.count() == 2);
      l.arrive_and_wait(2, it.ctx);  // open: goes on at once
    });
  }

  TEST_CASE("a timed wait is false at exactly its deadline") {
    in_virtual([] {
      latch l(1);
      const auto start = clock::now();
      CHECK_FALSE(l.try_wait());
      CHECK_FALSE(l.wait_for(10ms));
      CHECK_FALSE(l.wait_until(start + 20ms));
      CHECK(since(start) == 20ms);
      l.count_down();
      CHECK(l.wait_until(start));
    });
  }

  TEST_CASE("never rises and never goes below zero") {
    latch l(2);
    CHECK_THROWS_AS(l.count_down(-1), std::logic_error);
    CHECK_THROWS_AS(l.count_down(std::numeric_limits<std::int64_t>::min()), std::logic_error);
    CHECK(holds(text_of<std::logic_error>([&] { l.count_down(3); }), "more than is left"));
    CHECK(l.count() == 2);
    l.count_down(0);
    l.count_down(2);
    CHECK_THROWS_AS(l.count_down(), std::logic_error);
    CHECK_THROWS_AS(latch(-1), std::invalid_argument);
    latch(0).wait();
  }

  TEST_CASE("threads and fibers meet at one") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      latch l(4);
      std::thread a([&] { l.arrive_and_wait(); });
      std::thread b([&] { l.arrive_and_wait(); });
      auto f = spawn([&] { l.arrive_and_wait(); });
      l.arrive_and_wait();
      f.join();
      a.join();
      b.join();
    });
  }
}
