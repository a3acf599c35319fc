// Handles of timers on other clocks: moved, assigned, and owned by their own callbacks;
// and a step that is told while a run ends.
#include "core/clocks/clock_hub.hpp"
#include "core/clocks/clocks_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("clocks: handles") {
  TEST_CASE("a timer that was moved from is empty") {
    in_virtual([] {
      auto a = vigil::wall::after_func_at(wall_clock::now() + 1h, [] {});
      {
        const auto b = std::move(a);
        CHECK_FALSE(a);
        CHECK_FALSE(a.stop());
        CHECK_THROWS_AS(a.reset(wall_clock::now()), std::logic_error);
        CHECK(a.deadline() == wall_clock::time_point::max());
        CHECK(b.stop());
      }
      CHECK_FALSE(a.stop());
      a = vigil::wall::after_func_at(wall_clock::now() + 1h, [] {});
      CHECK(a.stop());
    });
  }

  TEST_CASE("a timer may be assigned to by the end of the captures that own it") {
    struct owner {
      vigil::wall::timer timer;
    };

    in_virtual([] {
      auto s = std::make_shared<owner>();
      owner* const raw = s.get();
      s->timer = vigil::wall::after_func_at(wall_clock::now() + 1h, [s] {});
      CHECK(s->timer.stop());
      s.reset();
      raw->timer = vigil::wall::timer();  // ends its owner
    });
  }

  TEST_CASE("steps that are told as a run ends leave nothing pending") {
    repeat(rounds(400), [](int i) {
      vigil::options o;
      o.workers = 1;
      vigil::run(o, [i] {
        auto& hub = *vigil::detail::clock_hub::of(*vigil::detail::current_scheduler());
        for (int k = 0; k < 100; ++k)
          vigil::wall::after_func_at(wall_clock::now() + 1h, [] {});
        hub.listener().pretend_step();
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(i % 120);
        while (std::chrono::steady_clock::now() < end) {
        }
      });
    });
  }
}
