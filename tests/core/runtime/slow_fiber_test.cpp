// options::slow_fiber names the fiber that keeps a worker, once.
#include "core/runtime/runtime_test.hpp"
#include "core/runtime/stuck_helpers.hpp"
#include "support/error_output.hpp"
#include "support/hidden_deadlock.hpp"
#include "support/note.hpp"
#include "support/text_of.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <unistd.h>

using namespace vigil::testing_support;

namespace {

vigil::options slow_watched() {
  vigil::options o;
  o.workers = 2;
  o.slow_fiber = 10ms;
  return o;
}

// Keeps the thread until a report has written the text.
void block_until(error_output& said, const char* text) {
  while (!said.has(text))
    std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_SUITE("slow_fiber") {
  // All of these use real time: slow_fiber is about how long a system thread is kept.
  // They block their threads on purpose, until the report is there.
  TEST_CASE("child: blocks its thread in four ways" * doctest::skip()) {
    error_output said;
    vigil::run(slow_watched(), [&] {
      for (int i = 0; i < 3; ++i) {
        vigil::spawn({.name = "sleeps"}, [&] {
          block_until(said, "(sleeps)");
          vigil::this_fiber::yield();
          std::this_thread::sleep_for(30ms);  // too long once more: it is not named again
        }).join();
      }
      int ends[2];
      if (::pipe(ends) != 0) std::abort();
      std::thread writer([&] {
        block_until(said, "(reads)");
        if (::write(ends[1], "x", 1) != 1) std::abort();
      });
      vigil::spawn({.name = "reads"}, [&] {
        char c = 0;
        if (::read(ends[0], &c, 1) != 1) std::abort();
      }).join();
      writer.join();
      std::mutex m;
      std::atomic<bool> held{false};
      std::thread holder([&] {
        const std::lock_guard guard(m);
        held = true;
        block_until(said, "(locks)");
      });
      while (!held)
        vigil::sleep_for(100us);
      vigil::spawn({.name = "locks"}, [&] { const std::lock_guard guard(m); }).join();
      holder.join();
      std::atomic<int> runs{0};
      auto t = vigil::every(1ms, [&] {
        block_until(said, "(callbacks), started at " __FILE__);
        std::this_thread::sleep_for(20ms);
        ++runs;
      });
      while (runs < 3)
        vigil::sleep_for(1ms);
      t.stop_and_wait();
    });
  }

  TEST_CASE("names a fiber that sleeps, reads or locks on its thread, and a callback, once each") {
    const child_result child = run_child("child: blocks its thread in four ways");
    CHECK(child.succeeded());
    for (const char* name : {"(sleeps)", "(reads)", "(locks)"}) {
      NOTE(std::string(name));
      CHECK(count_of(child.output, name) == 1);
    }
    // The runner of callbacks, which vigil has started, may be named too.
    CHECK(count_of(child.output, "(callbacks)") -
              count_of(child.output, "(callbacks), started at vigil,") ==
          1);
    CHECK(child.says("slow_fiber_test.cpp:"));
    CHECK(child.says("options::slow_fiber is 10.000 ms"));
  }

  TEST_CASE("child: never comes back" * doctest::skip()) {
    vigil::options o = slow_watched();
    o.workers = 1;
    o.stop_limit = 0s;
    error_output said;
    vigil::run(o, [&] {
      while (!said.has("and still does")) {
      }
    });
  }

  TEST_CASE("names a fiber that does not come back while it is still busy, once") {
    const child_result child = run_child("child: never comes back");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, "(main)") == 1);
    CHECK(child.says("and still does"));
  }

  TEST_CASE("child: waits and yields" * doctest::skip()) {
    vigil::testing::virtual_options how;
    how.runtime.slow_fiber = 1s;  // longer than this process may be kept off its processor
    vigil::testing::run_virtual(how, [] {
      vigil::sleep_for(1h);
      // Blocks on purpose, longer than slow_fiber: a function on the side pool does not
      // count.
      vigil::blocking([] { std::this_thread::sleep_for(1500ms); });
      const auto until = std::chrono::steady_clock::now() + 1500ms;
      while (std::chrono::steady_clock::now() < until)
        vigil::this_fiber::yield();
      std::puts("quiet");
    });
  }

  TEST_CASE("a fiber that waits, calls blocking, or yields is not named") {
    const child_result child = run_child("child: waits and yields");
    CHECK(child.succeeded());
    CHECK(child.says("quiet"));
    CHECK_FALSE(child.says("slow_fiber"));
  }

  TEST_CASE("child: callbacks in a row" * doctest::skip()) {
    vigil::testing::virtual_options how;
    how.runtime.slow_fiber = 1s;  // as above
    vigil::testing::run_virtual(how, [] {
      int runs = 0;
      for (int i = 0; i < 15; ++i) {
        // Blocks on purpose: together they last longer than slow_fiber.
        vigil::after_func(1s, [&runs] {
          std::this_thread::sleep_for(100ms);
          ++runs;
        });
      }
      vigil::sleep_for(2s);
      if (runs == 15) std::puts("quiet");
    });
  }

  TEST_CASE("the callbacks that a worker runs in a row count one by one") {
    const child_result child = run_child("child: callbacks in a row");
    CHECK(child.succeeded());
    CHECK(child.says("quiet"));
    CHECK_FALSE(child.says("slow_fiber"));
  }

  TEST_CASE("while all workers sleep nobody looks for slow fibers") {
    vigil::options o = slow_watched();
    o.stuck_limit = 20ms;  // a short rhythm: they have slept for eight ticks of 5 ms
    o.warm_stacks = 0;
    unsigned long before = 0;
    unsigned long after = 0;
    attention of_overseer;
    vigil::run(o, [&] {
      of_overseer.begins();
      const auto& waits = vigil::detail::current_scheduler()->overseer_waits;
      vigil::blocking([&] {
        of_overseer.await_rest();
        before = waits.get();
        std::this_thread::sleep_for(100ms);  // 40 looks
        after = waits.get();
      });
    });
    CHECK(after - before <= 1);
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // sanitizers have threads of their own
  TEST_CASE("its thread does not hide a deadlock, and is gone after the run") {
    if (is_deadlock_hidden()) return;
    const child_result child = run_child("child: deadlock beside the watch");
    CHECK(child.says("thrown"));
  }
#endif

  TEST_CASE("child: deadlock beside the watch" * doctest::skip()) {
    try {
      vigil::run(slow_watched(), [] { vigil::make_channel<int>().recv(); });
    } catch (const vigil::deadlock&) {
      std::puts("thrown");
    }
  }
}
