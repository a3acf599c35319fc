#include "core/clocks/clocks_test.hpp"

#include <functional>

namespace {

using namespace vigil::testing_support;
using vigil::wall::after_func_at;
using wall_timer = vigil::wall::timer;

}  // namespace

TEST_SUITE("callbacks on other clocks") {
  TEST_CASE("a callback runs once, when the wall clock reads its time") {
    in_virtual([] {
      std::vector<wall_time> runs;
      const auto note = [&runs] { runs.push_back(wall_clock::now()); };
      const wall_timer t = after_func_at(wall_start + 1h, note);
      CHECK(t.deadline() == wall_start + 1h);
      vigil::sleep_for(2h);
      CHECK(runs == std::vector{wall_start + 1h});
      CHECK(t.deadline() == wall_time::max());
      CHECK_FALSE(t.stop());
      after_func_at(wall_start, note);  // has passed
      settle();
      CHECK(runs == std::vector{wall_start + 1h, wall_start + 2h});
    });
  }

  TEST_CASE("after a step forwards it runs once, at once") {
    for_each_seed(20, [] {
      int ran = 0;
      const wall_timer t = after_func_at(wall_start + 1h, [&ran] { ++ran; });
      step_wall(30min);
      settle();
      CHECK(ran == 0);
      CHECK(in_heap() == 1);
      step_wall(48h);
      settle();
      CHECK(ran == 1);
      step_wall(-48h);
      vigil::sleep_for(100h);
      CHECK(ran == 1);
      CHECK(in_heap() == 0);
    });
  }

  TEST_CASE("after a step backwards it waits until its time comes again") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::optional<std::chrono::nanoseconds> ran_after;
      after_func_at(wall_start + 1h, [&] { ran_after = since(start); });
      vigil::sleep_for(59min);
      step_wall(-1h);
      vigil::sleep_for(59min);
      CHECK_FALSE(ran_after.has_value());
      vigil::sleep_for(1h);
      CHECK(ran_after == 2h);
    });
  }

  TEST_CASE("steps one after the other, without a fiber in between, leave one arming") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      std::vector<std::chrono::nanoseconds> runs;
      const wall_timer t = after_func_at(wall_start + 1h, [&] { runs.push_back(since(start)); });
      step_wall(2h);
      step_wall(-2h);  // it was due, and has not begun
      CHECK(t.deadline() == wall_start + 1h);
      vigil::sleep_for(59min);
      CHECK(runs.empty());
      vigil::sleep_for(2h);
      CHECK(runs == std::vector<std::chrono::nanoseconds>{1h});
    });
  }

  TEST_CASE("on boot time it counts suspend") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::optional<std::chrono::nanoseconds> ran_after;
      vigil::boot::after_func_at(boot_clock::now() + 8h, [&] { ran_after = since(start); });
      vigil::sleep_for(1h);
      suspend_for(6h);
      vigil::sleep_for(10h);
      CHECK(ran_after == 2h);
    });
  }

  TEST_CASE("stop and reset say whether the callback was pending, even when it is due") {
    for_each_seed(20, [] {
      int ran = 0;
      const wall_timer t = after_func_at(wall_start + 1h, [&ran] { ++ran; });
      CHECK(t.stop());
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.reset(wall_start + 2h));
      CHECK(t.reset(wall_start + 1h));
      step_wall(1h);    // due, not begun
      CHECK(t.stop());  // prevents it
      settle();
      CHECK(ran == 0);
      CHECK_FALSE(t.reset(wall_start));
      CHECK(t.reset(wall_start + 2h));  // the earlier arming is gone
      settle();
      CHECK(ran == 0);
      vigil::sleep_for(1h);
      settle();
      CHECK(ran == 1);
      CHECK_FALSE(t.stop_and_wait());
      CHECK(in_heap() == 0);
    });
  }

  TEST_CASE("inside the callback nothing is pending, and reset makes it run again") {
    in_virtual([] {
      std::vector<wall_time> runs;
      wall_timer t;
      t = after_func_at(wall_start + 1h, [&] {
        runs.push_back(wall_clock::now());
        CHECK_FALSE(t.stop());
        CHECK_THROWS_AS(t.stop_and_wait(), vigil::wrong_place);
        if (runs.size() < 3) CHECK_FALSE(t.reset(wall_clock::now() + 24h));
      });
      vigil::sleep_for(1000h);
      CHECK(runs == std::vector{wall_start + 1h, wall_start + 25h, wall_start + 49h});
      t = {};
    });
  }

  TEST_CASE("stop_and_wait waits for a run under way, as long as its context lets it") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const wall_timer t = after_func_at(wall_start, [] { vigil::sleep_for(1h); });
      settle();
      const auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 10min);
      CHECK_THROWS_AS(t.stop_and_wait(ctx), vigil::cancelled);
      CHECK_FALSE(t.stop_and_wait());
      CHECK(since(start) == 1h);
    });
  }

  TEST_CASE("a run that was given up leaves what others have armed since") {
    for (const std::chrono::hours step : {0h, 1h, -1h}) {
      in_virtual([step] {
        std::vector<wall_time> runs;
        wall_timer t;
        t = after_func_at(wall_start, [&] {
          runs.push_back(wall_clock::now());
          if (runs.size() != 1) return;
          vigil::sleep_for(1h);
          CHECK_FALSE(t.reset(wall_start + 9h));
          if (step != 0h) step_wall(step);
        });
        settle();
        const auto limited = vigil::with_timeout(vigil::background(), 10min);
        CHECK_THROWS_AS(t.stop_and_wait(limited.ctx), vigil::cancelled);
        CHECK_FALSE(t.reset(wall_start + 3h));
        vigil::sleep_for(1h);
        CHECK(t.deadline() == wall_start + 3h);
        vigil::sleep_for(9h);
        CHECK(runs == std::vector{wall_start, wall_start + 3h});
        CHECK(in_heap() == 0);
      });
    }
  }

  TEST_CASE("the captures die once it is neither pending nor running and no handle is left") {
    in_virtual([] {
      const auto captured = std::make_shared<int>(0);
      const auto make = [&](wall_time t) { return after_func_at(t, [captured] { ++*captured; }); };
      make(wall_start + 1h);
      CHECK(captured.use_count() == 2);
      vigil::sleep_for(2h);
      CHECK(captured.use_count() == 1);
      CHECK(*captured == 1);
      {
        const wall_timer t = make(wall_start + 24h);
        CHECK(t.stop());
        CHECK(captured.use_count() == 2);
        CHECK_FALSE(t.reset(wall_start + 3h));
        CHECK(t.stop());
      }
      CHECK(captured.use_count() == 1);
      step_wall(48h);
      settle();
      CHECK(*captured == 1);
    });
  }

  TEST_CASE("captures of a callback that has not run die before run returns") {
    const auto captured = std::make_shared<int>(0);
    in_virtual([&] { after_func_at(wall_start + 1h, [captured] {}); });
    CHECK(captured.use_count() == 1);
  }

  TEST_CASE("a pending one keeps a program alive until all is done, unless it is not referenced") {
    int ran = 0;
    for (const bool referenced : {true, false}) {
      vigil::testing::virtual_options o;
      o.runtime.exit = vigil::exit_when::all_done;
      in_virtual(o, [&] {
        const wall_timer t = after_func_at(wall_start + 1h, [&ran] { ++ran; });
        CHECK(t.has_ref());
        step_wall(-24h);
        if (!referenced) t.unref();
      });
      CHECK(ran == 1);
    }
  }

  TEST_CASE("what a step ends too early is filed anew, in a program that waits for all") {
    std::vector<wall_time> runs;
    vigil::testing::virtual_options o;
    o.runtime.exit = vigil::exit_when::all_done;
    in_virtual(o, [&] {
      after_func_at(wall_start + 1h, [&] { runs.push_back(wall_clock::now()); });
      step_wall(2h);
      step_wall(-2h);
    });
    CHECK(runs == std::vector{wall_start + 1h});
  }

  TEST_CASE("one that is pending when its run ends is dropped, and may be armed in the next run") {
    vigil::options o;
    o.workers = 1;
    vigil::runtime rt(o);
    int ran = 0;
    wall_timer t;
    rt.run([&] { t = after_func_at(wall_clock::now() + 1h, [&ran] { ++ran; }); });
    CHECK(t.deadline() == wall_time::max());
    CHECK_FALSE(t.stop());
    rt.run([&] {
      CHECK_FALSE(t.reset(wall_clock::now()));
      while (ran == 0)
        vigil::sleep_for(1ms);
      CHECK_FALSE(t.reset(wall_clock::now() + 1h));
    });
    CHECK(ran == 1);
  }

  TEST_CASE("an empty function is refused, and an exception goes to on_unhandled") {
    in_virtual([] {
      CHECK_THROWS_AS(after_func_at(wall_start, std::function<void()>()), std::invalid_argument);
      CHECK(in_heap() == 0);
    });
    CHECK_THROWS_AS(in_virtual([] {
                      after_func_at(wall_start + 1h, [] { throw std::domain_error("planted"); });
                      vigil::sleep_for(2h);
                    }),
                    std::domain_error);
  }
}
