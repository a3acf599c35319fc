// Callbacks on wall and boot time: those that take their timer, and the end of their
// captures (timer/own_timer_test.cpp, timer/captures_end_test.cpp).
#include "core/clocks/clocks_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("a callback on another clock that takes its timer") {
  TEST_CASE("may reset it, though no other handle is left") {
    in_virtual([] {
      int runs = 0;
      int boots = 0;
      auto shared = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = shared;
      vigil::wall::after_func_at(wall_start + 1h, [&runs, p = shared](vigil::wall::timer& self) {
        if (++runs == 1) {
          CHECK_FALSE(self.reset(wall_start + 2h));
          CHECK(self.deadline() == wall_start + 2h);
        }
      });
      vigil::boot::after_func_at(boot_clock::now() + 1h,
                                 [&boots, p = std::move(shared)](vigil::boot::timer& self) {
                                   ++boots;
                                   CHECK_FALSE(self.stop());
                                 });
      sleep_for(90min);
      CHECK(runs == 1);
      CHECK(boots == 1);
      CHECK_FALSE(watch.expired());
      sleep_for(1h);
      CHECK(runs == 2);
      CHECK(watch.expired());
    });
  }

  TEST_CASE("cannot start it while it is stopped for good") {
    for_each_seed(20, [] {
      int runs = 0;
      auto t = vigil::wall::after_func_at(wall_start, [&](vigil::wall::timer& self) {
        ++runs;
        sleep_for(20ms);
        CHECK_FALSE(self.reset(wall_start));
      });
      sleep_for(10ms);
      CHECK(t.stop_and_wait());
      sleep_for(1s);
      CHECK(runs == 1);
    });
  }
}

TEST_SUITE("captures on other clocks, at the end of the runtime") {
  TEST_CASE("are destroyed though handles are left, which then do nothing") {
    const auto shared = std::make_shared<int>(7);
    vigil::wall::timer pending;
    vigil::boot::timer stopped;
    vigil::wall::timer has_run;
    const auto owner = std::make_shared<vigil::wall::timer>();
    in_virtual([&] {
      pending = vigil::wall::after_func_at(wall_start + 1h, [p = shared] {});
      stopped = vigil::boot::after_func_at(boot_clock::now() + 1h, [p = shared] {});
      stopped.stop();
      has_run = vigil::wall::after_func_at(wall_start, [p = shared] {});
      *owner = vigil::wall::after_func_at(wall_start + 1h, [p = shared, owner] {});
      sleep_for(1ms);
      CHECK(shared.use_count() == 5);
    });
    CHECK(shared.use_count() == 1);
    CHECK(owner.use_count() == 1);
    for (const vigil::wall::timer& t : {pending, has_run, *owner}) {
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.stop_and_wait());
      CHECK_THROWS_AS(t.reset(wall_start), vigil::runtime_gone);
      CHECK(t.deadline() == wall_time::max());
    }
    CHECK_FALSE(stopped.stop());
    CHECK_THROWS_AS(stopped.reset(boot_time()), vigil::runtime_gone);
  }
}
