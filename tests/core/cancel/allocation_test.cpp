// The allocations of contexts.
#include "core/cancel/cancel_test.hpp"

#ifndef VIGIL_TEST_UNDER_SANITIZER

#include "support/counted_new.hpp"

using namespace vigil::testing_support;

TEST_SUITE("context") {
  // Go: TestAllocs.
  TEST_CASE("contexts allocate as little as they can") {
    in_virtual([] {
      const auto root = background();
      CHECK(allocations_of([&] { with_cancel(root).cancel(); }) <= 1);
      CHECK(allocations_of([&] { with_timeout(root, 1h).cancel(); }) <= 2);
      CHECK(allocations_of([&] {
              auto it = with_timeout(root, 1ms);
              vigil::sleep_for(2ms);
              CHECK(it.ctx.is_done());
            }) <= 2);
      CHECK(allocations_of([&] { with_timeout(with_timeout(root, 1s).ctx, 1h).cancel(); }) <= 3);
      CHECK(allocations_of([&] {
              const auto it = with_cancel(root);
              static_cast<void>(it.ctx.done());
            }) <= 1);
      CHECK(allocations_of([&] { CHECK(vigil::after_func(root, [] {}).stop()); }) <= 1);
    });
  }

  // Go: TestWithCancelSimultaneouslyCanceledParent.
  TEST_CASE("a parent that ends while a child is being made leaves it done, without a timer") {
    in_virtual([] {
      for (const std::size_t n : {1u, 2u}) {  // before it is linked below, and after
        const auto parent = with_cancel(background());
        at_allocation(n, [&parent] { parent.cancel(); });
        const auto child = with_timeout(parent.ctx, 1h);
        CHECK(parent.ctx.is_done());
        CHECK(child.ctx.is_done());
        CHECK(vigil::stats().timers_pending == 0);
      }
    });
  }

  TEST_CASE("a wait under a context allocates nothing") {
    in_virtual([] {
      const auto it = with_cancel(background());
      const auto c = vigil::make_channel<int>();
      auto giver = vigil::spawn([&] {
        for (int i = 0; i < 4; ++i) {
          vigil::sleep_for(1ms);
          c.send(i);
        }
      });
      CHECK(allocations_of([&] {
              static_cast<void>(c.recv(it.ctx));
              vigil::sleep_for(1us, it.ctx);
              static_cast<void>(c.recv(it.ctx));
            }) == 0);
      giver.join();
    });
  }
}

#endif
