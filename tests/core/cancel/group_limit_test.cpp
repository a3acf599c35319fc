// Groups with a limit: waits for a free slot, and what ends such a wait.
#include "core/cancel/cancel_test.hpp"

#include <algorithm>

using namespace vigil::testing_support;

TEST_SUITE("group") {
  TEST_CASE("never more run than its limit, first come, first served") {
    for_each_seed(10, [] {
      const auto start = clock::now();
      group g(group::options{.limit = 3});
      int running = 0;
      int most = 0;
      std::vector<int> order;
      // No two end at the same moment, so the slots are returned one by one.
      const auto work = [&](int i) {
        order.push_back(i);
        most = std::max(most, ++running);
        sleep_for(1s + i * 1ms);
        --running;
      };
      std::vector<vigil::fiber<>> callers;
      for (int i = 0; i < 9; ++i) {
        callers.push_back(vigil::spawn([&, i] { g.go([&, i] { work(i); }); }));
        settle();
      }
      CHECK(order == std::vector<int>{0, 1, 2});
      for (auto& caller : callers)
        caller.join();
      CHECK(since(start) == 2s + 7ms);
      g.wait();
      CHECK(since(start) == 3s + 15ms);
      CHECK(most == 3);
      CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8});
    });
  }

  TEST_CASE("try_go refuses when the limit is reached, with the function untouched") {
    in_virtual([] {
      group g(group::options{.limit = 1});
      CHECK(g.try_go([] { sleep_for(1s); }));
      auto value = std::make_unique<int>(7);
      auto f = [p = std::move(value)] { CHECK(*p == 7); };
      CHECK_FALSE(g.try_go(std::move(f)));
      sleep_for(2s);
      CHECK(g.try_go(std::move(f)));
      g.wait();
    });
  }

  TEST_CASE("a go that waits for a slot ends when the group fails, and starts nothing") {
    in_virtual([] {
      group g(group::options{.limit = 1});
      g.go([] {
        sleep_for(1s);
        throw failure{1};
      });
      bool ran = false;
      const auto start = clock::now();
      g.go([&] { ran = true; });
      CHECK(since(start) == 1s);
      CHECK(number_thrown_by(g) == 1);
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("a go that waits for a slot ends when the context does, even if no slot becomes free") {
    in_virtual([] {
      const auto start = clock::now();
      auto parent = with_cancel(background());
      group g(parent.ctx, {.limit = 1});
      g.go([] {
        const vigil::this_fiber::shield s;
        sleep_for(1h);
      });
      static_cast<void>(vigil::after_func(1s, [&] { parent.cancel(failure{7}); }));
      auto shared = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = shared;
      bool ran = false;
      g.go([&ran, p = std::move(shared)] { ran = true; });
      CHECK(since(start) == 1s);
      CHECK(watch.expired());
      CHECK(number_thrown_by(g) == 7);
      CHECK(since(start) == 1h);
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("a go that waits for a slot ends at the context's deadline") {
    in_virtual([] {
      const auto start = clock::now();
      group g(with_timeout(background(), 1s).ctx, {.limit = 1});
      g.go([] {
        const vigil::this_fiber::shield s;
        sleep_for(2s);
      });
      g.go([] {});
      CHECK(since(start) == 1s);
      try {
        g.wait();
        FAIL("no error");
      } catch (const cancelled& c) {
        CHECK(c.code() == std::errc::timed_out);
      }
    });
  }

  TEST_CASE("a go that waits for a slot ends by a stop, and the slot is not lost") {
    in_virtual([] {
      group g(group::options{.limit = 1});
      g.go([] { sleep_for(1s); });
      auto other = vigil::spawn([&] { g.go([] {}); });
      settle();
      other.request_stop();
      CHECK_THROWS_AS(other.join(), cancelled);
      int ran = 0;
      g.go([&] { ++ran; });
      g.wait();
      CHECK(ran == 1);
    });
  }
}
