// Deadlines of contexts: which one counts, when, and the cost of its timer.
#include "core/cancel/cancel_test.hpp"

#include <chrono>
#include <thread>

namespace {

using namespace vigil::testing_support;
using vigil::context_key;
using vigil::stats;
using vigil::with_deadline;
using vigil::with_value;

const context_key<int> number_key;

}  // namespace

TEST_SUITE("context: deadlines") {
  // Go: TestDeadline, TestTimeout.
  TEST_CASE("a deadline ends it at its very instant") {
    in_virtual([] {
      const auto t = clock::now() + 3s;
      auto by_point = with_deadline(background(), t);
      auto by_length = with_timeout(background(), 3s);
      CHECK(by_point.ctx.deadline() == t);
      CHECK(by_length.ctx.deadline() == t);
      static_cast<void>(by_point.ctx.done().recv());
      CHECK(clock::now() == t);
      settle();
      CHECK(is_timed_out(by_point.ctx));
      CHECK(is_timed_out(by_length.ctx));
      CHECK(number_of(by_point.ctx) == -2);
    });
  }

  // Go: TestDeadline, TestTimeout.
  TEST_CASE("a real deadline never ends it early") {
    in_runtime({}, [] {
      for (int i = 0; i < 20; ++i) {
        const auto start = clock::now();
        auto it = with_timeout(background(), 700us);
        static_cast<void>(it.ctx.done().recv());
        CHECK(clock::now() - start >= 700us);
      }
    });
  }

  TEST_CASE("a parent's that has passed does as well, although its timer could not fire yet") {
    in_runtime({.workers = {1}}, [] {
      const auto parent = with_timeout(background(), 1ms, cause_of(4));
      while (clock::now() <= parent.ctx.deadline()) {
      }
      for (const std::chrono::seconds d : {-3600s, 0s, 3600s}) {
        const auto late = with_timeout(parent.ctx, d, cause_of(5));
        CHECK(is_timed_out(late.ctx));
        CHECK(late.ctx.deadline() <= parent.ctx.deadline());
        CHECK(number_of(late.ctx) == (d < 0s ? 5 : 4));
      }
    });
  }

  // Go: TestDeadline, TestTimeout.
  TEST_CASE("a deadline that has passed, or is now, ends it from the start") {
    in_virtual([] {
      const auto now = clock::now();
      CHECK(is_timed_out(with_deadline(background(), now).ctx));
      CHECK(is_timed_out(with_deadline(background(), now - 1h).ctx));
      CHECK(is_timed_out(with_deadline(background(), clock::time_point::min()).ctx));
      CHECK(is_timed_out(with_timeout(background(), 0s).ctx));
      CHECK(is_timed_out(with_timeout(background(), -1h).ctx));
      CHECK(is_timed_out(with_timeout(background(), std::chrono::nanoseconds::min()).ctx));
      auto late = with_timeout(background(), 0s, cause_of(3));
      late.cancel();
      CHECK(is_timed_out(late.ctx));
      CHECK(number_of(late.ctx) == 3);
      CHECK(children_of(background()) == 0);
      CHECK(stats().timers_pending == 0);
    });
  }

  TEST_CASE("a deadline beyond the range of the clock is not a deadline, and arms nothing") {
    in_virtual([] {
      auto it = with_timeout(background(), std::chrono::hours::max());
      CHECK(it.ctx.deadline() == clock::time_point::max());
      CHECK(stats().timers_pending == 0);
      sleep_for(1h);
      CHECK(is_open(it.ctx));
      it.cancel();
    });
  }

  // Go: TestDeadline, TestTimeout; no timer under a parent whose deadline is not
  // later.
  TEST_CASE("of parent and child the earlier deadline wins; a later one arms no timer") {
    in_virtual([] {
      const auto start = clock::now();
      auto parent = with_timeout(background(), 2s);
      CHECK(stats().timers_pending == 1);
      auto later = with_timeout(parent.ctx, 3s, cause_of(3));
      auto equal = with_timeout(parent.ctx, 2s, cause_of(2));
      auto none = with_cancel(parent.ctx);
      CHECK(stats().timers_pending == 1);
      auto earlier = with_timeout(parent.ctx, 1s, cause_of(1));
      CHECK(stats().timers_pending == 2);
      CHECK(later.ctx.deadline() == start + 2s);
      CHECK(none.ctx.deadline() == start + 2s);
      CHECK(earlier.ctx.deadline() == start + 1s);
      static_cast<void>(earlier.ctx.done().recv());
      CHECK(since(start) == 1s);
      CHECK(number_of(earlier.ctx) == 1);
      static_cast<void>(later.ctx.done().recv());
      CHECK(since(start) == 2s);
      settle();
      CHECK(number_of(later.ctx) == -2);
      CHECK(number_of(equal.ctx) == -2);
      CHECK(is_timed_out(none.ctx));
    });
  }

  // The timer of the parent's deadline went away with the run in which it was made.
  TEST_CASE("a child made in a later run keeps the parent's deadline, if that is earlier") {
    context parent;
    vigil::run([&] { parent = with_timeout(without_cancel(background()), 20ms, cause_of(7)).ctx; });
    vigil::run([&] {
      const auto later = with_timeout(parent, 1h, cause_of(8));
      const auto below = with_timeout(with_value(later.ctx, number_key, 1), 2h);
      CHECK(later.ctx.deadline() == parent.deadline());
      CHECK(below.ctx.deadline() == parent.deadline());
      CHECK(stats().timers_pending <= 1);
      REQUIRE(below.ctx.done().recv_for(20s).is_closed());
      CHECK(clock::now() >= parent.deadline());
      CHECK(number_of(later.ctx) == 7);
    });
    context another;
    vigil::run(
        [&] { another = with_timeout(without_cancel(background()), 20ms, cause_of(9)).ctx; });
    vigil::run([&] {
      const auto endless = vigil::with_deadline(another, clock::time_point::max());
      CHECK(endless.ctx.deadline() == another.deadline());
      REQUIRE(endless.ctx.done().recv_for(20s).is_closed());
      CHECK(number_of(endless.ctx) == 9);
    });
    // Its deadline has passed by now, in whatever run.
    CHECK(number_of(with_timeout(parent, 1h).ctx) == 7);
    vigil::run([&] {
      CHECK(number_of(with_timeout(parent, 1h).ctx) == 7);
      CHECK(number_of(with_timeout(parent, 1000000h).ctx) == 7);
    });
    in_virtual([&] { CHECK(number_of(with_timeout(parent, 1h).ctx) == 7); });
  }

  TEST_CASE("a child made in another run of one runtime has a timer of its own") {
    vigil::runtime rt;
    context parent;
    rt.run([&] { parent = with_timeout(without_cancel(background()), 1h).ctx; });
    rt.run([&] {
      const auto it = with_timeout(parent, 2h);
      CHECK(it.ctx.deadline() == parent.deadline());
      CHECK(stats().timers_pending == 1);
      const auto below = with_timeout(it.ctx, 3h);
      CHECK(stats().timers_pending == 1);
    });
  }

  TEST_CASE("a child of a context of another runtime has a timer of its own") {
    vigil::run([] {
      const auto parent = with_timeout(background(), 1h);
      std::thread([&] {
        CHECK_THROWS_AS(static_cast<void>(with_timeout(parent.ctx, 2h)), vigil::wrong_place);
        CHECK_FALSE(with_timeout(parent.ctx, clock::duration::max()).ctx.is_done());
        vigil::run([&] {
          const auto it = with_timeout(parent.ctx, 2h);
          CHECK(it.ctx.deadline() == parent.ctx.deadline());
          CHECK(stats().timers_pending == 1);
        });
      }).join();
    });
  }

  TEST_CASE("deadlines on different clocks do not count for each other") {
    context real;
    context unreal;
    vigil::run([&] { real = with_timeout(without_cancel(background()), 10h).ctx; });
    const auto ends_after_a_second = [](const context& parent) {
      const auto start = clock::now();
      const auto it = with_timeout(parent, 1s, cause_of(1));
      CHECK(it.ctx.deadline() == start + 1s);
      const auto below = with_timeout(it.ctx, 2s);
      CHECK(stats().timers_pending == 1);
      static_cast<void>(below.ctx.done().recv());
      CHECK(since(start) == 1s);
      CHECK(number_of(it.ctx) == 1);
    };
    in_virtual([&] {
      ends_after_a_second(real);
      unreal = with_timeout(without_cancel(background()), 1ns).ctx;
    });
    in_virtual([&] { ends_after_a_second(unreal); });
    vigil::run([&] {
      const auto it = with_timeout(unreal, 1ms);
      CHECK(it.ctx.done().recv_for(20s).is_closed());
      CHECK(is_timed_out(it.ctx));
    });
  }

  // Go: TestDeadline, TestTimeout.
  TEST_CASE("under a parent that is done, on another clock, the deadline is the child's own") {
    context real;
    context unreal;
    const auto cancelled_in_ten_hours = [] {
      const auto it = with_timeout(without_cancel(background()), 10h);
      it.cancel();
      return it.ctx;
    };
    const auto has_its_own = [](const context& parent) {
      const auto t = clock::now() + 1s;
      CHECK(with_deadline(parent, t).ctx.deadline() == t);
      const auto later = clock::now() + 100h;
      CHECK(with_deadline(parent, later).ctx.deadline() == later);
      CHECK(with_deadline(parent, clock::time_point::max()).ctx.deadline() == parent.deadline());
    };
    vigil::run([&] {
      real = cancelled_in_ten_hours();
      CHECK(with_timeout(real, 100h).ctx.deadline() == real.deadline());
    });
    in_virtual([&] {
      has_its_own(real);
      unreal = cancelled_in_ten_hours();
      CHECK(with_timeout(unreal, 100h).ctx.deadline() == unreal.deadline());
    });
    in_virtual([&] { has_its_own(unreal); });
    vigil::run([&] { has_its_own(unreal); });
  }

  TEST_CASE("so it is under a parent whose deadline has passed, on another clock, unheard") {
    context real;
    vigil::run([&] { real = with_timeout(without_cancel(background()), 1ms).ctx; });
    // Real time: no run is there to hear of it.
    while (clock::now() <= real.deadline())
      std::this_thread::sleep_for(1ms);
    in_virtual([&] {
      const auto t = clock::now() + 1s;
      const auto it = with_deadline(real, t);
      CHECK(is_timed_out(it.ctx));
      CHECK(it.ctx.deadline() == t);
      CHECK(with_timeout(it.ctx, 100h).ctx.deadline() == t);
      CHECK(with_deadline(real, clock::time_point::max()).ctx.deadline() == real.deadline());
    });
  }

  TEST_CASE("below such a child its own clock counts, not that of the ancestor with a timer") {
    context real;
    context below_endless;
    vigil::run([&] {
      const auto it = with_timeout(without_cancel(background()), 10h);
      it.cancel();
      real = it.ctx;
      const auto none = with_cancel(without_cancel(background()));
      none.cancel();
      below_endless = with_timeout(none.ctx, 1s).ctx;
    });
    in_virtual([&] {
      const auto child = with_timeout(real, 1s);
      CHECK(with_timeout(child.ctx, 100s).ctx.deadline() == child.ctx.deadline());
      CHECK(with_timeout(with_value(child.ctx, number_key, 1), 100s).ctx.deadline() ==
            child.ctx.deadline());
      const auto t = clock::now() + 1h;
      CHECK(with_deadline(below_endless, t).ctx.deadline() == t);
    });
  }

  // Go: TestCanceledTimeout.
  TEST_CASE("a cancel before the deadline is a cancel, and stops the timer") {
    in_virtual([] {
      auto it = with_timeout(background(), 1h, cause_of(1));
      CHECK(stats().timers_pending == 1);
      it.cancel();
      CHECK(is_cancelled(it.ctx));
      CHECK(number_of(it.ctx) == -1);
      CHECK(stats().timers_pending == 0);
    });
  }
}
