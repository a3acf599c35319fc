// How a blocking() call ends before its function does: by a stop, by a context, by the
// end of the run.
#include "core/sched/worker/scheduler.hpp"
#include "support/child.hpp"
#include "support/gate.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <memory>
#include <thread>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

TEST_SUITE("blocking and the end") {
  // Node, libuv: running work cannot be cancelled (threadpool_cancel_when_busy).
  TEST_CASE("a stop ends the caller's wait at once and leaves the function to its thread") {
    in_runtime({}, [] {
      auto g = std::make_shared<gate>();
      auto caller = vigil::spawn([g] { vigil::blocking([g] { g->wait(); }); });
      g->wait_until_entered();
      caller.request_stop();
      CHECK_THROWS_AS(caller.join(), vigil::cancelled);
      CHECK(vigil::stats_of_blocking().running == 1);
      g->open();
    });
  }

  // Node, libuv: queued work can be cancelled.
  TEST_CASE("a stop removes a queued function") {
    real_options how;
    how.settings.blocking_threads = 1;
    in_runtime(how, [] {
      auto g = std::make_shared<gate>();
      bool ran = false;
      auto first = vigil::spawn([g] { vigil::blocking([g] { g->wait(); }); });
      g->wait_until_entered();
      auto second = vigil::spawn([&ran] { vigil::blocking([&ran] { ran = true; }); });
      while (vigil::stats_of_blocking().queued == 0)
        vigil::this_fiber::yield();
      second.request_stop();
      CHECK_THROWS_AS(second.join(), vigil::cancelled);
      CHECK(vigil::stats_of_blocking().queued == 0);
      g->open();
      first.join();
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("a context removes a queued function, and ends the wait for one that runs") {
    real_options how;
    how.settings.blocking_threads = 1;
    in_runtime(how, [] {
      auto g = std::make_shared<gate>();
      std::atomic<bool> ran{false};
      auto it = vigil::with_cancel(vigil::background());
      auto first = vigil::spawn([g, &it] { vigil::blocking(it.ctx, [g] { g->wait(); }); });
      g->wait_until_entered();
      auto second =
          vigil::spawn([&ran, &it] { return vigil::blocking(it.ctx, [&ran] { ran = true; }); });
      while (vigil::stats_of_blocking().queued == 0)
        vigil::this_fiber::yield();
      it.cancel();
      CHECK_THROWS_AS(first.join(), vigil::cancelled);
      CHECK_THROWS_AS(second.join(), vigil::cancelled);
      CHECK(vigil::stats_of_blocking().queued == 0);
      CHECK_THROWS_AS(vigil::blocking(it.ctx, [&ran] { ran = true; }), vigil::cancelled);
      g->open();
      CHECK(vigil::blocking([] { return 7; }) == 7);  // the thread has come back
      CHECK_FALSE(ran.load());
    });
  }

  TEST_CASE("a context that is done already: the function is not even queued") {
    auto it = vigil::with_cancel(vigil::background());
    it.cancel();
    CHECK_THROWS_AS(vigil::blocking(it.ctx, [] { FAIL("runs"); }), vigil::cancelled);
    in_virtual([] {
      auto here = vigil::with_cancel(vigil::background());
      here.cancel();
      CHECK_THROWS_AS(vigil::blocking(here.ctx, [] { FAIL("runs"); }), vigil::cancelled);
      vigil::blocking_pool pool({.threads = 1});
      CHECK_THROWS_AS(vigil::blocking(pool, here.ctx, [] { return 1; }), vigil::cancelled);
      CHECK(pool.stats().threads == 0);
      CHECK(vigil::stats_of_blocking().threads == 0);
    });
  }

  TEST_CASE("a caller that must stop does not begin, under a shield it does and waits") {
    in_virtual([] {
      bool refused = false;
      int result = 0;
      auto f = vigil::spawn([&] {
        try {
          vigil::sleep_for(1h);
        } catch (const vigil::stopped&) {
          try {
            vigil::blocking([] { FAIL("runs"); });
          } catch (const vigil::stopped&) {
            refused = true;
          }
          const vigil::this_fiber::shield shield;
          result = vigil::blocking([] { return 4; });
          throw;
        }
      });
      vigil::this_fiber::yield();
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(refused);
      CHECK(result == 4);
    });
  }

  TEST_CASE("run returns only after an abandoned function has returned") {
    for (const bool on_virtual : {false, true}) {
      std::atomic<bool> returned{false};
      auto g = std::make_shared<gate>();
      const auto body = [&] {
        auto& sched = *vigil::detail::current_scheduler();
        vigil::go([g, &returned, &sched] {
          vigil::blocking([g, &returned, &sched] {
            g->wait();
            // The main fiber waits for nothing else.
            while (sched.state.phase() < vigil::detail::run_phase::stopping ||
                   sched.fibers.alive() > 1)
              std::this_thread::yield();
            returned = true;
          });
        });
        while (!g->entered())
          vigil::this_fiber::yield();
        g->open();
      };
      if (on_virtual) {
        vigil::testing::run_virtual(body);
      } else {
        vigil::run(body);
      }
      CHECK(returned.load());
    }
  }

  TEST_CASE("child: never returns" * doctest::skip()) {
    vigil::options o;
    o.stop_limit = 50ms;
    vigil::run(o, [] {
      auto g = std::make_shared<gate>();
      vigil::go([g] {
        vigil::this_fiber::set_name("asks the printer");
        vigil::blocking([g] { g->wait(); });
      });
      g->wait_until_entered();
    });
  }

  TEST_CASE("child: never returns on virtual time" * doctest::skip()) {
    vigil::testing::virtual_options how;
    how.runtime.stop_limit = 50ms;
    vigil::testing::run_virtual(how, [] {
      auto g = std::make_shared<gate>();
      vigil::go([g] {
        vigil::this_fiber::set_name("asks the printer");
        vigil::blocking([g] { g->wait(); });
      });
      while (!g->entered())
        vigil::this_fiber::yield();
    });
  }

  TEST_CASE("a function that does not return within the stop limit is named, then abort") {
    for (const char* name : {"child: never returns", "child: never returns on virtual time"}) {
      const child_result child = run_child(name);
      CHECK(child.died_by(SIGABRT));
      CHECK(child.says("a function on a side pool, called "));
      CHECK(child.says("(asks the printer) at "));
      CHECK(child.says("blocking_end_test.cpp:"));
    }
  }
}
