#include "core/runtime/runtime_test.hpp"
#include "support/at_rest.hpp"
#include "support/hidden_deadlock.hpp"

#include <vigil/stop_token.hpp>

#include <cstdio>

#include <unistd.h>

using namespace vigil::testing_support;

namespace {

void sleep_for_ever() {
  spawn([] { sleep_for(std::chrono::nanoseconds::max()); }).join();
}

vigil::options with(vigil::on_deadlock policy, std::size_t workers) {
  vigil::options o;
  o.deadlock = policy;
  o.workers = workers;
  return o;
}

}  // namespace

TEST_SUITE("deadlock") {
  // Go: TestSimpleDeadlock, TestLockedDeadlock.
  TEST_CASE("fibers parked for ever are unwound and run throws") {
    for (const std::size_t workers : {1u, 2u, 4u}) {
      std::atomic<int> unwound{0};

      struct guard {
        std::atomic<int>* n;

        ~guard() { n->fetch_add(1); }
      };

      CHECK_THROWS_AS(vigil::run(with(vigil::on_deadlock::fatal, workers),
                                 [&] {
                                   const guard g{&unwound};
                                   vigil::go([&] {
                                     const guard mine{&unwound};
                                     const vigil::this_fiber::pin pinned;
                                     sleep_for_ever();
                                   });
                                   sleep_for_ever();
                                 }),
                      vigil::deadlock);
      CHECK(unwound.load() == 2);
    }
  }

  // Go: after timers.
  TEST_CASE("is found after timers have come and gone") {
    CHECK_THROWS_AS(vigil::run(with(vigil::on_deadlock::fatal, 2),
                               [] {
                                 sleep_for(1ms);
                                 auto t = vigil::after_func(1h, [] {});
                                 vigil::after_func(1ms, [t]() mutable { t.stop(); });
                                 sleep_for_ever();
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("is found on virtual time, and not while a timer is pending") {
    bool ran = false;
    CHECK_THROWS_AS(vigil::testing::run_virtual([&] {
                      vigil::after_func(24h, [&] { ran = true; });
                      sleep_for_ever();
                    }),
                    vigil::deadlock);
    CHECK(ran);
  }

  TEST_CASE("timers that never come due do not hide it") {
    CHECK_THROWS_AS(vigil::testing::run_virtual([&] {
                      vigil::after_func(std::chrono::hours::max(), [] {});
                      sleep_for(std::chrono::hours::max());
                    }),
                    vigil::deadlock);
    CHECK_THROWS_AS(vigil::run(with(vigil::on_deadlock::fatal, 2),
                               [] {
                                 auto f = spawn([] { sleep_for(std::chrono::nanoseconds::max()); });
                                 f.join();
                               }),
                    vigil::deadlock);
  }

  // Go: TestNetpollDeadlock.
  TEST_CASE("is not reported while outside work is announced") {
    vigil::runtime rt(with(vigil::on_deadlock::fatal, 2));
    CHECK(rt.run([&] {
      auto guard = rt.make_work_guard();
      std::atomic<bool> done{false};
      auto waiting = spawn([] { sleep_for(std::chrono::hours::max()); });
      std::thread outside(
          [&, &sched = *vigil::detail::current_scheduler(), g = std::move(guard)]() mutable {
            wait_until_at_rest(sched);
            rt.go([&] { waiting.request_stop(); });
            g.release();
          });
      try {
        waiting.join();
      } catch (const vigil::cancelled&) {
        done.store(true);
      }
      outside.join();
      return done.load();
    }));
  }

  TEST_CASE("is reported once the last work guard has gone") {
    vigil::runtime rt(with(vigil::on_deadlock::fatal, 2));
    std::thread outside;
    CHECK_THROWS_AS(rt.run([&] {
      outside = std::thread(
          [&sched = *vigil::detail::current_scheduler(), g = rt.make_work_guard()]() mutable {
            vigil::work_guard moved = std::move(g);
            wait_until_at_rest(sched);
          });
      sleep_for_ever();
    }),
                    vigil::deadlock);
    outside.join();
  }

  TEST_CASE("a work guard may outlive its runtime") {
    vigil::work_guard guard;
    {
      vigil::runtime rt;
      guard = rt.make_work_guard();
      rt.run([] {});
    }
    guard.release();
    guard.release();
  }

  TEST_CASE("child: deadlock beside a plain thread" * doctest::skip()) {
    vigil::runtime rt(with(vigil::on_deadlock::automatic, 2));
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const int before = ::dup(2);
    ::dup2(ends[1], 2);
    ::close(ends[1]);
    // Passes the report on, and stops the run once it has come.
    std::thread outside([&] {
      std::string seen;
      char text[4096];
      for (ssize_t n; (n = ::read(ends[0], text, sizeof text)) > 0;) {
        seen.append(text, static_cast<std::size_t>(n));
        if (seen.find("the stuck one") != std::string::npos) rt.request_stop();
      }
      std::fputs(seen.c_str(), stdout);
    });
    rt.run([] {
      vigil::this_fiber::set_name("the stuck one");
      sleep_for_ever();
    });
    ::dup2(before, 2);  // closes the last end for writing
    outside.join();
    std::puts("went on");
  }

  TEST_CASE("with a plain thread in the process it is one warning and the program goes on") {
    const child_result r = run_child("child: deadlock beside a plain thread");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("every fiber is parked"));
    CHECK(r.says("make_work_guard"));
    CHECK(r.says("the stuck one"));
    CHECK(r.says("went on"));
    CHECK(r.output.find("every fiber is parked") == r.output.rfind("every fiber is parked"));
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer may have a thread of its own
  TEST_CASE("a wait for the end of the run is none while a plain thread may ask for it") {
    for (const auto policy : {vigil::on_deadlock::automatic, vigil::on_deadlock::fatal}) {
      for (const std::size_t workers : {1u, 2u}) {
        vigil::runtime rt(with(policy, workers));
        std::thread outside;
        bool went_on = false;
        rt.run([&] {
          outside = std::thread([&, &sched = *vigil::detail::current_scheduler()] {
            for (int i = 0; i < 20; ++i) {
              wait_until_at_rest(sched);
              rt.go([] {});
            }
            wait_until_at_rest(sched);
            rt.request_stop();
          });
          vigil::background().done().recv();
          went_on = true;
        });
        outside.join();
        CHECK(went_on);
      }
    }
  }

  TEST_CASE("child: deadlock alone" * doctest::skip()) {
    CHECK_THROWS_AS(vigil::run(with(vigil::on_deadlock::automatic, 2),
                               [] {
                                 vigil::this_fiber::set_name("the stuck one");
                                 sleep_for_ever();
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("alone in the process it is fatal, with a dump that names the fibers") {
    if (is_deadlock_hidden()) return;
    const child_result r = run_child("child: deadlock alone");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("vigil: deadlock"));
    CHECK(r.says("the stuck one"));
    CHECK(r.says("parked: join"));
    CHECK(r.says("deadlock_test.cpp:"));
  }
#endif

  // A stop was requested and the grace has no end: the root context's callback waits for
  // ever, and so does the main fiber. Only the watch over the callback counts.
  TEST_CASE("child: deadlock in a grace without an end" * doctest::skip()) {
    vigil::options o = with(vigil::on_deadlock::fatal, 2);
    o.grace = std::chrono::nanoseconds::max();
    o.stop_limit = 50ms;
    vigil::runtime rt(o);
    rt.run([&rt] {
      const vigil::this_fiber::shield shielded;
      const auto wait = [] {
        const vigil::this_fiber::shield too;
        sleep_for(std::chrono::nanoseconds::max());
      };
      const std::stop_callback stuck(vigil::stop_token_of(vigil::background()), wait);
      rt.request_stop();
      sleep_for(std::chrono::nanoseconds::max());
    });
  }

  TEST_CASE("in a grace without an end it ends the grace for all, and the stop limit is counted") {
    const child_result r = run_child("child: deadlock in a grace without an end");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("vigil: deadlock"));
    CHECK(r.says("options::stop_limit"));
    CHECK(r.says("inside a stop_callback"));
  }

  TEST_CASE("is never reported for programs that only wait for one another") {
    in_runtime({.workers = {1, 2, 4}, .settings = with(vigil::on_deadlock::fatal, 1)}, [] {
      for (int round = 0; round < rounds(5000); ++round) {
        auto f = spawn([] { vigil::spawn([] {}).join(); });
        f.join();
        if (round % 10 == 0) sleep_for(1us);
      }
    });
  }
}
