// group_of: results in the order of go, all or none.
#include "core/cancel/cancel_test.hpp"

#include <stdexcept>
#include <string>

using namespace vigil::testing_support;
using vigil::group_of;

TEST_SUITE("group_of") {
  TEST_CASE("returns the results in the order of go, whatever the order of the ends") {
    for_each_seed(10, [] {
      group_of<std::string> g(group_of<std::string>::options{.limit = 3});
      for (int i = 0; i < 10; ++i) {
        g.go([i](const context& ctx) {
          sleep_for((i * 7 % 10) * 1ms, ctx);
          return std::to_string(i);
        });
      }
      const auto all = g.wait();
      REQUIRE(all.size() == 10);
      for (int i = 0; i < 10; ++i)
        CHECK(all[static_cast<std::size_t>(i)] == std::to_string(i));
    });
  }

  TEST_CASE("takes move-only results, and throws the first error instead of any") {
    in_virtual([] {
      group_of<std::unique_ptr<int>> good;
      good.go([] { return std::make_unique<int>(7); });
      CHECK(*good.wait().at(0) == 7);
      group_of<std::unique_ptr<int>> bad;
      bad.go([] { return std::make_unique<int>(7); });
      bad.go([]() -> std::unique_ptr<int> { throw failure{4}; });
      CHECK_THROWS_AS(bad.wait(), failure);
      CHECK(bad.context().is_done());
    });
  }

  TEST_CASE("a go that throws leaves no gap among the results") {
    struct throws_when_moved {
      throws_when_moved() = default;

      throws_when_moved(throws_when_moved&&) { throw failure{3}; }

      int operator()() const { return 0; }
    };

    in_virtual([] {
      group_of<int> g;
      g.go([] { return 1; });
      CHECK_THROWS_AS(g.go(throws_when_moved()), failure);
      g.go([] { return 2; });
      CHECK(g.wait() == std::vector<int>{1, 2});
      CHECK_THROWS_AS(g.go([] { return 3; }), std::logic_error);
      CHECK(g.wait().empty());
    });
  }

  TEST_CASE("try_go refuses when the limit is reached, and no result is missing then") {
    in_virtual([] {
      group_of<int> g(group_of<int>::options{.limit = 1});
      CHECK(g.try_go([] {
        sleep_for(1s);
        return 1;
      }));
      auto f = [p = std::make_unique<int>(2)] { return *p; };
      CHECK_FALSE(g.try_go(std::move(f)));
      sleep_for(2s);
      CHECK(g.try_go(std::move(f)));
      CHECK(g.wait() == std::vector<int>{1, 2});
    });
  }

  TEST_CASE("has all results or none: after a cancel wait throws cancelled, with its cause") {
    in_virtual([] {
      group_of<int> g;
      for (int i = 0; i < 3; ++i) {
        g.go([i] {
          if (i == 1) sleep_for(1h);
          return i;
        });
      }
      settle();
      g.cancel(std::make_exception_ptr(failure{7}));
      for (int again = 0; again < 2; ++again) {
        try {
          static_cast<void>(g.wait());
          FAIL("no error");
        } catch (const cancelled& c) {
          CHECK(c.code() == std::errc::operation_canceled);
          CHECK_FALSE(c.is_by_shutdown());
          CHECK_THROWS_AS(std::rethrow_exception(c.cause()), failure);
        }
      }
      // All had ended before: nothing is missing.
      group_of<int> late;
      late.go([] { return 5; });
      settle();
      late.cancel();
      CHECK(late.wait() == std::vector<int>{5});
      CHECK(late.wait().empty());
    });
  }

  TEST_CASE("wait_for tells whether all have ended") {
    in_virtual([] {
      group_of<int> g;
      g.go([] {
        sleep_for(2s);
        return 1;
      });
      CHECK_FALSE(g.wait_for(0s));
      CHECK_FALSE(g.wait_for(1s));
      CHECK(g.wait_until(clock::now() + 2s));
      CHECK(g.wait() == std::vector<int>{1});
    });
  }

  TEST_CASE("that is never waited for joins its fibers before its results are destroyed") {
    in_virtual([] {
      bool ended = false;
      {
        group_of<int> g;
        g.go([&] {
          const vigil::this_fiber::shield s;
          sleep_for(1s);
          ended = true;
          return 1;
        });
        settle();
      }
      CHECK(ended);
    });
  }
}
