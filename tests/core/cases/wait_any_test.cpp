// wait_any and wait_all.
#include "core/cases/cases_test.hpp"

using namespace vigil::testing_support;
using vigil::wait_all;
using vigil::wait_all_for;
using vigil::wait_any;
using vigil::wait_any_for;

TEST_SUITE("wait_any, wait_all") {
  TEST_CASE("wait_any tells which has ended, until each was joined") {
    in_virtual([] {
      std::vector<vigil::fiber<int>> all;
      for (int i = 0; i < 100; ++i)
        all.push_back(ends_after((100 - i) * 1s, i));
      for (int i = 99; i >= 0; --i) {
        const std::size_t ended = wait_any(all);
        CHECK(ended == static_cast<std::size_t>(i));
        CHECK(all[ended].joinable());
        CHECK(all[ended].join_for(0s));
        CHECK(all[ended].join() == i);
      }
      CHECK_THROWS_AS(wait_any(all), std::invalid_argument);
      all.clear();
      CHECK_THROWS_AS(wait_any(all), std::invalid_argument);
      wait_all(all);
    });
  }

  TEST_CASE("handles of several types and ranges are counted through") {
    in_virtual([] {
      auto a = ends_after(3s, 1);
      auto b = spawn([] { sleep_for(1s); });
      std::vector<vigil::fiber<int>> more;
      more.push_back(ends_after(2s, 2));
      CHECK(wait_any(a, b, more) == 1);
      b.join();
      CHECK(wait_any(a, b, more) == 2);
      CHECK(wait_any_for(1h, a, more) == 1u);
      CHECK(more[0].join() == 2);
      CHECK(wait_any(a) == 0);
      CHECK(a.join() == 1);
    });
  }

  TEST_CASE("a limit ends the wait, and the fibers go on") {
    in_virtual([] {
      std::vector<vigil::fiber<int>> all;
      all.push_back(ends_after(10s, 1));
      all.push_back(ends_after(20s, 2));
      CHECK(wait_any_for(1s, all) == std::nullopt);
      CHECK(wait_any_for(-1s, all) == std::nullopt);
      CHECK(vigil::wait_any_until(vigil::clock::now() + 1s, all) == std::nullopt);
      const auto ctx = vigil::with_timeout(vigil::background(), 1s);
      CHECK_THROWS_AS(wait_any(ctx.ctx, all), vigil::cancelled);
      CHECK_THROWS_AS(wait_all(ctx.ctx, all), vigil::cancelled);
      CHECK_FALSE(wait_all_for(1s, all));
      CHECK_FALSE(wait_all_for(0s, all));
      CHECK_FALSE(vigil::wait_all_until(vigil::clock::now() + 8s, all));
      CHECK(wait_any_for(0s, all) == 0u);
      CHECK(wait_all_for(1h, all));
      CHECK(all[0].join() + all[1].join() == 3);
      auto stopped = spawn([] {
        auto f = ends_after(1h, 1);
        static_cast<void>(wait_any(f));
      });
      settle();
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
    });
  }

  TEST_CASE("a fiber that has failed has ended: join() says how") {
    in_virtual([] {
      auto f = spawn([]() -> int { throw std::runtime_error("x"); });
      auto g = ends_after(1s, 1);
      CHECK(wait_any(g, f) == 1);
      wait_all(f, g);
      CHECK_THROWS_AS(f.join(), std::runtime_error);
      CHECK(g.join() == 1);
    });
  }

  TEST_CASE("the caller's own fiber and one that is being joined are refused") {
    in_virtual([] {
      vigil::fiber<> own;
      own = spawn([&] {
        CHECK_THROWS_AS(wait_any(own), vigil::wrong_place);
        CHECK_THROWS_AS(wait_all(own), vigil::wrong_place);
        auto slow = ends_after(100s, 1);
        const auto began = vigil::clock::now();
        CHECK_THROWS_AS(wait_any(slow, own), vigil::wrong_place);
        CHECK_THROWS_AS(wait_all(slow, own), vigil::wrong_place);
        CHECK_THROWS_AS(static_cast<void>(wait_all_for(1s, slow, own)), vigil::wrong_place);
        CHECK(vigil::clock::now() == began);
        slow.join();
      });
      own.join();
      auto f = ends_after(1s, 1);
      auto g = ends_after(2s, 1);
      auto joins = spawn([&] { return f.join(); });
      settle();
      CHECK_THROWS_AS(wait_any(g, f), vigil::wrong_place);
      CHECK_THROWS_AS(wait_all(f, g), vigil::wrong_place);
      CHECK_THROWS_AS(wait_any(g, g), vigil::wrong_place);
      joins.join();
      g.join();
    });
  }

  TEST_CASE("every fiber is found once, on threads and fibers") {
    in_runtime({}, [](vigil::runtime& rt) {
      const auto outside = rt.make_work_guard();
      const auto sum_of = [](std::vector<vigil::fiber<int>> all) {
        int sum = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
          sum += all[wait_any(all)].join();
        return sum;
      };
      std::vector<vigil::fiber<int>> here;
      std::vector<vigil::fiber<int>> there;
      for (int i = 0; i < 50; ++i) {
        here.push_back(spawn([i] {
          if (i % 2 == 0) vigil::this_fiber::yield();
          return i;
        }));
        there.push_back(spawn([i] { return i; }));
      }
      std::atomic<int> sum{-1};
      std::thread plain([&] { sum = sum_of(std::move(there)); });
      CHECK(sum_of(std::move(here)) == 1225);
      while (sum < 0)
        vigil::this_fiber::yield();
      plain.join();
      CHECK(sum == 1225);
    });
  }
}
