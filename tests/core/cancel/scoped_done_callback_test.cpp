// scoped_done_callback: the end of a scope and after_func(ctx, f).
#include "core/cancel/cancel_test.hpp"

#include <string>
#include <utility>

using namespace vigil::testing_support;
using vigil::scoped_done_callback;

TEST_SUITE("scoped_done_callback") {
  TEST_CASE("prevents the function at the end of the scope") {
    for_each_seed(5, [] {
      auto [ctx, cancel] = vigil::with_cancel(background());
      int runs = 0;
      {
        const scoped_done_callback registered = vigil::after_func(ctx, [&] { ++runs; });
      }
      cancel();
      sleep_for(1s);
      CHECK(runs == 0);
    });
  }

  TEST_CASE("waits for the function if it runs, or prevents one that is due") {
    for_each_seed(20, [] {
      auto [ctx, cancel] = vigil::with_cancel(background());
      auto local = std::make_unique<std::string>();
      bool begun = false;
      bool ended = false;
      {
        const scoped_done_callback registered = vigil::after_func(ctx, [&] {
          begun = true;
          sleep_for(1s);
          *local += 'a';
          ended = true;
        });
        cancel();
        vigil::this_fiber::yield();
      }
      local.reset();
      CHECK(begun == ended);
      sleep_for(2s);
      CHECK(begun == ended);
    });
  }

  TEST_CASE("on several workers the function never runs beyond the scope") {
    in_runtime({.workers = {2, 4}}, [] {
      for (int i = 0; i < rounds(200); ++i) {
        auto [ctx, cancel] = vigil::with_cancel(background());
        auto local = std::make_unique<int>(0);
        auto canceller = vigil::spawn([cancel = cancel] { cancel(); });
        {
          const scoped_done_callback registered = vigil::after_func(ctx, [&] { ++*local; });
          if (i % 2 == 0) vigil::this_fiber::yield();
        }
        local.reset();
        canceller.join();
      }
    });
  }

  TEST_CASE("that ends inside the function does not wait for itself") {
    in_virtual([] {
      auto [ctx, cancel] = vigil::with_cancel(background());
      auto owned = std::make_unique<scoped_done_callback>();
      bool ran = false;
      *owned = vigil::after_func(ctx, [&] {
        owned.reset();
        ran = true;
      });
      cancel();
      sleep_for(1s);
      CHECK(ran);
    });
  }

  TEST_CASE("an assignment ends the old one, a move hands over, release gives up") {
    in_virtual([] {
      auto [ctx, cancel] = vigil::with_cancel(background());
      std::string log;
      scoped_done_callback first = vigil::after_func(ctx, [&] { log += 'a'; });
      first = vigil::after_func(ctx, [&] { log += 'b'; });
      scoped_done_callback second = std::move(first);
      first = {};
      vigil::done_callback kept =
          scoped_done_callback(vigil::after_func(ctx, [&] { log += 'c'; })).release();
      const scoped_done_callback never = vigil::after_func(vigil::without_cancel(ctx), [] {});
      cancel();
      sleep_for(1s);
      CHECK((log == "bc" || log == "cb"));
      CHECK_FALSE(kept.stop());
    });
  }
}
