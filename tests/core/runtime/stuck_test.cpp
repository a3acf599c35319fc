// options::stuck_limit: a message says, once, that no worker makes progress although
// somebody waits for one; the dump says since when a fiber has been running.
#include "core/runtime/runtime_test.hpp"
#include "core/runtime/stuck_helpers.hpp"
#include "support/dumped.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

using namespace vigil::testing_support;

TEST_SUITE("stuck") {
  // --- whole programs that are stuck; each ends when the report has come

  TEST_CASE("child: a static whose initialiser waits" * doctest::skip()) {
    const after_report here("(second)", [] { leave(); });
    vigil::run(watched(1), [] {
      static std::atomic<bool> second_begins{false};
      const auto use = [] {
        static const int value = [] {
          while (!second_begins)
            vigil::sleep_for(1ms);
          return 1;
        }();
        return value;
      };
      auto first = vigil::spawn({.name = "first"}, use);
      auto second_one = vigil::spawn({.name = "second"}, [&] {
        second_begins = true;
        return use();
      });
      first.join();
      second_one.join();
    });
  }

  TEST_CASE("a static whose initialiser waits hangs the worker: reported, with its fiber") {
    const child_result child = run_child("child: a static whose initialiser waits");
#ifdef _LIBCPP_VERSION
    // libc++'s runtime asks for the thread, and takes the second fiber for a recursion.
    CHECK(child.says("__cxa_guard_acquire detected recursive initialization"));
#else
    CHECK(child.succeeded());
    CHECK(count_of(child.output, no_progress) == 1);
    CHECK(child.says("(second) [running, for "));
    CHECK(child.says("stuck_test.cpp:"));
    CHECK_FALSE(child.says("(first)"));
    CHECK_FALSE(child.says("(main)"));
#endif
  }

  TEST_CASE("child: call_once on two workers" * doctest::skip()) {
    const after_report here("(third)", [] { leave(); });
    vigil::run(watched(2), [] {
      static std::once_flag once;
      static std::atomic<int> others{0};
      static std::atomic<bool> waits{false};
      auto first = vigil::spawn({.name = "first"}, [] {
        std::call_once(once, [] {
          waits = true;
          static_cast<void>(vigil::make_channel<int>().recv_for(1ms));
          while (others < 2)
            vigil::sleep_for(1ms);
        });
      });
      while (!waits)
        vigil::sleep_for(1ms);
      const auto use = [] {
        ++others;
        std::call_once(once, [] {});
      };
      auto second_one = vigil::spawn({.name = "second"}, use);
      auto third = vigil::spawn({.name = "third"}, use);
      first.join();
      second_one.join();
      third.join();
    });
  }

  TEST_CASE("std::call_once across a wait hangs both workers: reported, with both fibers") {
    const child_result child = run_child("child: call_once on two workers");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, no_progress) == 1);
    CHECK(child.says("(second) [running, for "));
    CHECK(child.says("(third) [running, for "));
    CHECK_FALSE(child.says("(first)"));
  }

  TEST_CASE("child: computes while a timer is due" * doctest::skip()) {
    std::atomic<bool> stuck{true};
    const after_report here("(cruncher)", [&] { stuck = false; });
    vigil::run(watched(1), [&] {
      // Twice: the message comes once in a run.
      for (int i = 0; i < 2; ++i) {
        auto f = vigil::spawn({.name = "cruncher"}, [&, i] {
          const auto due = vigil::after_func(1ms, [] {});
          const auto from = std::chrono::steady_clock::now();
          while (i == 0 ? stuck.load() : std::chrono::steady_clock::now() - from < 1500ms) {
          }
        });
        f.join();
      }
    });
    std::puts("over");
  }

  TEST_CASE("a fiber that computes while a timer is due is named, once in a run") {
    const child_result child = run_child("child: computes while a timer is due");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, no_progress) == 1);
    CHECK(count_of(child.output, "(cruncher) [running, for ") == 1);
    CHECK(child.says("over"));
  }

  TEST_CASE("child: computes on the worker of a pinned fiber" * doctest::skip()) {
    std::atomic<bool> stuck{true};
    const after_report here("(cruncher)", [&] { stuck = false; });
    vigil::run(watched(2), [&] {
      auto pinned = vigil::spawn([&] {
        const vigil::this_fiber::pin pinned_here;
        const auto home = std::this_thread::get_id();
        auto is_home = vigil::make_channel<bool>(1);
        for (bool done = false; !done;) {
          auto f = vigil::spawn({.name = "cruncher"}, [&] {
            const bool mine = std::this_thread::get_id() == home;  // not that of a thief
            static_cast<void>(is_home.try_send(mine));
            while (mine && stuck) {
            }
          });
          done = is_home.recv().value();
          f.join();
        }
      });
      pinned.join();
    });
    std::puts("over");
  }

  TEST_CASE("a fiber that computes while one pinned to its worker is ready is named alone") {
    const child_result child = run_child("child: computes on the worker of a pinned fiber");
    CHECK(child.succeeded());
    CHECK(child.says("although a fiber is ready that is pinned to one of them"));
    CHECK(count_of(child.output, "(cruncher) [running, for ") == 1);
    CHECK_FALSE(child.says("io_context"));
    CHECK(child.says("over"));
  }

  TEST_CASE("child: stuck after all have slept" * doctest::skip()) {
    std::atomic<bool> stuck{true};
    const after_report here("(late)", [&] { stuck = false; });
    vigil::runtime rt(watched(2));
    attention paid;
    auto over = vigil::make_channel<int>();
    std::thread outside([&] {
      paid.await_rest();
      for (int i = 0; i < 3; ++i) {  // the third one waits for a worker
        rt.go([&] {
          vigil::this_fiber::set_name("late");
          while (stuck) {
          }
        });
      }
      while (stuck)
        std::this_thread::sleep_for(1ms);
      over.send(1);
    });
    const auto guard = rt.make_work_guard();
    rt.run([&] {
      paid.begins();
      over.recv();
    });
    outside.join();
  }

  // --- the dump

  TEST_CASE("the dump says for how long a fiber has run, by two looks, with the option off") {
    for (const auto limit : {0ns, std::chrono::nanoseconds(10s)}) {
      vigil::run(watched(2, limit), [] {
        std::atomic<bool> on{true};
        std::atomic<bool> begun{false};
        auto f = vigil::spawn({.name = "busy"}, [&] {
          begun = true;
          while (on) {
          }
        });
        auto looker = vigil::spawn([&] {
          while (!begun)
            vigil::sleep_for(100us);
          const auto of_busy = [](const std::string& text) {
            const auto at = text.find("(busy)");
            return text.substr(at, text.find('\n', at) - at);
          };
          CHECK(of_busy(dumped()).find("[running, for ") != std::string::npos);
          std::this_thread::sleep_for(30ms);  // on purpose: a lower bound for the dump
          const std::string second_look = of_busy(dumped());
          CHECK_MESSAGE(second_look.find(" to ") != std::string::npos, second_look);
          double at_least = 0;
          std::sscanf(second_look.c_str(), "(busy) [running, for %lf to", &at_least);
          CHECK(at_least >= 0.029);
          on = false;
        });
        f.join();
        looker.join();
      });
    }
  }
}
