#include "core/clocks/clocks_test.hpp"

#include <cstdio>
#include <string>

using namespace vigil::testing_support;

TEST_SUITE("sleeps on other clocks") {
  TEST_CASE("virtual wall time and boot time begin with the runtime's clock and run with it") {
    in_virtual([] {
      CHECK(wall_clock::now() == wall_start);
      CHECK(boot_clock::now().time_since_epoch() == vigil::clock::now().time_since_epoch());
      vigil::sleep_for(90s);
      CHECK(wall_clock::now() == wall_start + 90s);
      CHECK(boot_clock::now().time_since_epoch() == vigil::clock::now().time_since_epoch());
    });
  }

  TEST_CASE("a step moves the wall clock alone, a suspend wall time and boot time") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto booted = boot_clock::now();
      step_wall(1h);
      CHECK(wall_clock::now() == wall_start + 1h);
      step_wall(-2h);
      CHECK(wall_clock::now() == wall_start - 1h);
      CHECK(boot_clock::now() == booted);
      suspend_for(8h);
      CHECK(wall_clock::now() == wall_start + 7h);
      CHECK(boot_clock::now() == booted + 8h);
      CHECK(vigil::clock::now() == start);
    });
  }

  TEST_CASE("a sleep on wall time ends when the wall clock reads its time") {
    in_virtual([] {
      vigil::wall::sleep_until(wall_start + 1500ms);
      CHECK(wall_clock::now() == wall_start + 1500ms);
      // Any unit will do.
      vigil::wall::sleep_until(std::chrono::floor<std::chrono::days>(wall_start) +
                               std::chrono::hours(1));
      CHECK(wall_clock::now() == wall_start + 1h);
      vigil::wall::sleep_until(wall_start);  // has passed
      CHECK(wall_clock::now() == wall_start + 1h);
    });
  }

  TEST_CASE("after a step forwards a sleep that is due ends at once, another that much sooner") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      auto due = vigil::spawn([] { vigil::wall::sleep_until(wall_start + 1h); });
      auto later = vigil::spawn([] { vigil::wall::sleep_until(wall_start + 3h); });
      vigil::testing::settle();
      step_wall(2h);
      due.join();
      CHECK(since(start) == 0s);
      later.join();
      CHECK(since(start) == 1h);
      CHECK(wall_clock::now() == wall_start + 3h);
    });
  }

  TEST_CASE("after a step backwards a sleep waits on until its time comes again") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto sleeper = vigil::spawn([] { vigil::wall::sleep_until(wall_start + 1h); });
      vigil::sleep_for(59min);
      step_wall(-30min);
      CHECK_FALSE(sleeper.join_for(30min));
      CHECK(since(start) == 89min);
      sleeper.join();
      CHECK(since(start) == 90min);
      CHECK(wall_clock::now() == wall_start + 1h);
    });
  }

  TEST_CASE("steps to and fro before the sleeper runs again cancel out") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto sleeper = vigil::spawn([] { vigil::wall::sleep_until(wall_start + 1h); });
      vigil::testing::settle();
      step_wall(2h);   // readies the sleeper
      step_wall(-2h);  // it has not run yet, and reads the clock as it is now
      sleeper.join();
      CHECK(since(start) == 1h);
    });
  }

  TEST_CASE(
      "a sleep on boot time counts the time in suspend, one on the runtime's clock does not") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto counted = vigil::spawn([] { vigil::boot::sleep_for(8h); });
      auto not_counted = vigil::spawn([] { vigil::sleep_for(8h); });
      vigil::sleep_for(1h);
      suspend_for(6h);
      counted.join();
      CHECK(since(start) == 2h);
      not_counted.join();
      CHECK(since(start) == 8h);
    });
  }

  TEST_CASE("a suspend beyond the deadline ends the sleep at once; a step of the wall does not") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto sleeper = vigil::spawn([] { vigil::boot::sleep_until(boot_clock::now() + 1h); });
      vigil::testing::settle();
      step_wall(1000h);
      CHECK_FALSE(sleeper.join_for(10min));
      suspend_for(24h);
      sleeper.join();
      CHECK(since(start) == 10min);
    });
  }

  TEST_CASE("a wall time that is given to vigil::sleep_until is converted once, as before") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto sleeper =
          vigil::spawn([] { vigil::sleep_until(std::chrono::system_clock::now() + 1h); });
      vigil::testing::settle();
      step_wall(10h);
      sleeper.join();
      CHECK(since(start) >= 1h - 1s);
    });
  }

  TEST_CASE("the largest time is never reached, even by a step, and the smallest has passed") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto forever = vigil::spawn([] { vigil::wall::sleep_until(wall_time::max()); });
      auto seconds = vigil::spawn([] {
        vigil::wall::sleep_until(std::chrono::sys_seconds::max());  // beyond nanoseconds
      });
      auto boot = vigil::spawn([] { vigil::boot::sleep_for(std::chrono::hours::max()); });
      vigil::testing::settle();
      step_wall(std::chrono::nanoseconds::max());
      CHECK(wall_clock::now() == wall_time::max());
      vigil::sleep_for(1h);
      suspend_for(std::chrono::hours::max());
      vigil::sleep_for(1h);
      CHECK_FALSE(forever.join_for(1h));
      CHECK_FALSE(seconds.join_for(1h));
      CHECK_FALSE(boot.join_for(1h));
      for (auto* const f : {&forever, &seconds, &boot})
        f->request_stop();
      for (auto* const f : {&forever, &seconds, &boot})
        CHECK_THROWS_AS(f->join(), vigil::cancelled);
      vigil::wall::sleep_until(wall_time::min());
      vigil::boot::sleep_until(boot_time::min());
      vigil::boot::sleep_for(std::chrono::hours::min());
      vigil::boot::sleep_for(0s);
      CHECK(since(start) == 5h);
    });
  }

  TEST_CASE("a context ends the sleep, unless the time has passed") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 10min);
      CHECK_THROWS_AS(vigil::wall::sleep_until(wall_start + 1h, ctx), vigil::cancelled);
      CHECK(since(start) == 10min);
      CHECK_THROWS_AS(vigil::boot::sleep_for(1h, ctx), vigil::cancelled);
      CHECK_THROWS_AS(vigil::boot::sleep_until(boot_clock::now() + 1h, ctx), vigil::cancelled);
      vigil::wall::sleep_until(wall_start, ctx);
      CHECK(since(start) == 10min);
      CHECK_THROWS_AS(vigil::wall::sleep_until(wall_start + 1h, vigil::context()),
                      std::invalid_argument);
    });
  }

  TEST_CASE("a stop ends the sleep, and nothing is left of it") {
    in_virtual([] {
      auto sleeper = vigil::spawn([] { vigil::wall::sleep_until(wall_start + 1h); });
      vigil::testing::settle();
      CHECK(in_heap() == 1);
      sleeper.request_stop();
      CHECK_THROWS_AS(sleeper.join(), vigil::cancelled);
      CHECK(in_heap() == 0);
      step_wall(2h);  // tells nobody
    });
  }

  TEST_CASE("a sleep costs one entry in the heap, however often the clock is stepped") {
    in_virtual([] {
      auto sleeper = vigil::spawn([] { vigil::wall::sleep_until(wall_start + 1000h); });
      for (int i = 0; i < 100; ++i) {
        vigil::testing::settle();
        CHECK(in_heap() == 1);
        step_wall(i % 2 == 0 ? 1h : -1h);
      }
      step_wall(1000h);
      sleeper.join();
    });
  }

  TEST_CASE("outside a fiber a sleep is an error, and steps are only for virtual time") {
    CHECK_THROWS_AS(vigil::wall::sleep_until(wall_clock::now() + 1h), vigil::wrong_place);
    CHECK_THROWS_AS(vigil::boot::sleep_for(1h), vigil::wrong_place);
    CHECK_THROWS_AS(step_wall(1s), vigil::wrong_place);
    in_runtime({.workers = {1}, .settings = {}}, [] {
      CHECK_THROWS_AS(step_wall(1s), vigil::wrong_place);
      CHECK_THROWS_AS(suspend_for(1s), vigil::wrong_place);
    });
    in_virtual([] { CHECK_THROWS_AS(suspend_for(-1ns), std::invalid_argument); });
  }

  TEST_CASE("a fiber that sleeps on wall time is waited for: that is no deadlock") {
    in_virtual([] {
      auto never_sent = vigil::make_channel<int>();
      auto sleeper = vigil::spawn([never_sent] {
        vigil::wall::sleep_until(wall_start + 1h);
        never_sent.close();
      });
      CHECK_FALSE(never_sent.recv().has_value());
      sleeper.join();
    });
  }

  TEST_CASE("the dump counts what is on another clock") {
    in_virtual([] {
      auto sleeper = vigil::spawn([] { vigil::wall::sleep_until(wall_start + 1h); });
      vigil::testing::settle();
      std::FILE* const file = std::tmpfile();
      REQUIRE(file != nullptr);
      vigil::debug::dump(file);
      std::rewind(file);
      char text[8192] = "";
      const std::size_t n = std::fread(text, 1, sizeof text - 1, file);
      std::fclose(file);
      const std::string all(text, n);
      CHECK(all.find("on wall or boot time: 1 pending, 1 filed") != std::string::npos);
      CHECK(all.find("sleep") != std::string::npos);
      sleeper.request_stop();
      CHECK_THROWS_AS(sleeper.join(), vigil::cancelled);
    });
  }
}
