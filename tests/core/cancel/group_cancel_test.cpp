// The errors that count after the end of a context or a cancel, and those that are
// dropped.
#include "core/cancel/cancel_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("group") {
  TEST_CASE("a parent that ends ends it: its fibers see it by their context, wait throws it") {
    in_virtual([] {
      const auto start = clock::now();
      auto parent = with_timeout(background(), 1s);
      group g(parent.ctx);
      g.go([](const context& ctx) { sleep_for(1h, ctx); });
      try {
        g.wait();
        FAIL("no error");
      } catch (const cancelled& c) {
        CHECK(c.code() == std::errc::timed_out);
      }
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("after cancel neither a stop nor the context's end is an error, whatever its cause") {
    in_virtual([] {
      for (const bool has_cause : {false, true}) {
        group g;
        g.go([] { sleep_for(1h); });
        g.go([](const context& ctx) { sleep_for(1h, ctx); });
        g.go([](const context& ctx) { sleep_for(1h, with_timeout(ctx, 2h).ctx); });
        settle();
        g.cancel(has_cause ? std::make_exception_ptr(failure{1}) : nullptr);
        g.wait();
        CHECK(g.context().is_done());
      }
    });
  }

  TEST_CASE("after cancel other errors are errors, and so is the context's end before it") {
    in_virtual([] {
      group fails;
      fails.go([](const context& ctx) {
        try {
          sleep_for(1h, ctx);
        } catch (const cancelled&) {
          throw failure{3};
        }
      });
      group other;
      other.go([](const context& ctx) {
        const vigil::this_fiber::shield s;
        const auto its_own = with_timeout(background(), 1s);
        try {
          sleep_for(1h, ctx);
        } catch (const cancelled&) {
          sleep_for(1h, its_own.ctx);
        }
      });
      auto parent = with_cancel(background());
      group below(parent.ctx);
      below.go([](const context& ctx) { sleep_for(1h, ctx); });
      settle();
      fails.cancel();
      CHECK(number_thrown_by(fails) == 3);
      other.cancel();
      CHECK_THROWS_AS(other.wait(), cancelled);
      parent.cancel();
      below.cancel();
      CHECK_THROWS_AS(below.wait(), cancelled);
    });
  }

  TEST_CASE("a function started when the context is done is dropped, and wait says so") {
    in_virtual([] {
      auto parent = with_cancel(background());
      group g(parent.ctx);
      parent.cancel(failure{7});
      auto shared = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = shared;
      bool ran = false;
      g.go([&ran, p = std::move(shared)] { ran = true; });
      CHECK(watch.expired());
      CHECK_FALSE(g.try_go([&] { ran = true; }));
      CHECK(number_thrown_by(g) == 7);
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("after cancel a function not started is not an error, and try_go leaves it alone") {
    in_virtual([] {
      const auto start = clock::now();
      group g({.limit = 1});
      g.go([] { sleep_for(1h); });
      auto waits = vigil::spawn([&g] { g.go([] { FAIL("started"); }); });
      settle();
      g.cancel();
      waits.join();
      bool started = false;
      g.go([&started] { started = true; });
      CHECK_FALSE(g.try_go([&started] { started = true; }));
      g.wait();
      CHECK_FALSE(started);
      CHECK(since(start) == 0s);
    });
  }

  TEST_CASE("a cancel stops the fibers that have not begun yet") {
    in_virtual([] {
      const auto start = clock::now();
      group g;
      g.go([] { sleep_for(1h); });
      g.cancel();
      g.wait();
      CHECK(since(start) == 0s);
    });
  }

  TEST_CASE("a cancel asks each of many to stop") {
    for_each_seed(3, [] {
      const auto start = clock::now();
      group g;
      int stopped = 0;
      for (int i = 0; i < 300; ++i) {
        g.go([&] {
          try {
            sleep_for(1h);  // not under the context
          } catch (const vigil::stopped&) {
            ++stopped;
            throw;
          }
        });
      }
      settle();
      g.cancel();
      g.cancel();
      g.wait();
      CHECK(stopped == 300);
      CHECK(since(start) == 0s);
    });
  }
}
