// options::stuck_limit: programs that are not stuck, about which nothing is reported, and
// the thread that watches them.
#include "core/runtime/runtime_test.hpp"
#include "core/runtime/stuck_helpers.hpp"
#include "support/hidden_deadlock.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>

#include <sys/wait.h>
#include <unistd.h>

using namespace vigil::testing_support;

TEST_SUITE("stuck") {
  TEST_CASE("child: one computes and the others go on" * doctest::skip()) {
    vigil::run(watched(2, 2s), [] {
      std::atomic<bool> on{true};
      auto busy = vigil::spawn([&] {
        while (on) {
        }
      });
      auto other = vigil::spawn([&] {
        const auto from = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - from < 2500ms)
          vigil::sleep_for(1ms);
        on = false;
      });
      busy.join();
      other.join();
    });
    std::puts("over");
  }

  TEST_CASE("with one worker that computes and another that goes on nothing is reported") {
    const child_result child = run_child("child: one computes and the others go on");
    CHECK(child.succeeded());
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(no_progress));
  }

  TEST_CASE("child: nobody waits for the one that computes" * doctest::skip()) {
    // No fiber is ready, and the only due timer was stopped: this may last any time.
    vigil::run(watched(1), [] {
      auto t = vigil::after_func(1ms, [] {});
      t.stop();
      const auto later = vigil::after_func(1h, [] {});
      const auto from = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - from < 1500ms) {
      }
    });
    vigil::run(watched(1),
               // Blocks on purpose, for longer than the limit.
               [] { vigil::blocking([] { std::this_thread::sleep_for(1500ms); }); });
    std::puts("over");
  }

  TEST_CASE("a computation for which nobody waits is not stuck, nor is a function in blocking") {
    const child_result child = run_child("child: nobody waits for the one that computes");
    CHECK(child.succeeded());
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(no_progress));
  }

  TEST_CASE("child: stuck with the option off" * doctest::skip()) {
    for (const auto limit : {0ns, -1ns}) {
      auto o = watched(1, limit);
      o.warm_stacks = 0;  // otherwise the overseer lets them cool
      vigil::run(o, [] {
        CHECK(vigil::detail::process_thread_count() == threads_at_first);
        auto ready = vigil::spawn([] {});
        const auto from = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - from < 50ms) {
        }
        ready.join();
      });
    }
    // Virtual time has no thread either.
    vigil::testing::virtual_options how;
    how.runtime.stuck_limit = 1ms;
    vigil::testing::run_virtual(
        how, [] { CHECK(vigil::detail::process_thread_count() == threads_at_first); });
    std::puts("over");
  }

  TEST_CASE("zero or less turns it off: nothing is reported, and no thread is needed for it") {
    const child_result child = run_child("child: stuck with the option off");
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(no_progress));
#ifndef VIGIL_TEST_UNDER_SANITIZER  // sanitizers have threads of their own
    CHECK(child.succeeded());
#endif
  }

  TEST_CASE("child: stopped and continued" * doctest::skip()) {
    // The helper lets the process stand still for longer than the limit.
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t self = ::getpid();
    const pid_t helper = ::fork();
    if (helper == 0) {
      char c = 0;
      if (::read(ends[0], &c, 1) != 1) ::_exit(1);
      for (char state = 0; state != 'T';) {
        std::ifstream stat("/proc/" + std::to_string(self) + "/stat");
        std::string line;
        std::getline(stat, line);
        state = line[line.rfind(')') + 2];
      }
      std::this_thread::sleep_for(2500ms);  // on purpose: longer than the limit
      ::kill(self, SIGCONT);
      ::_exit(0);
    }
    vigil::run(watched(1, 2s), [&] {
      auto ready = vigil::spawn([] {});
      if (::write(ends[1], "x", 1) != 1) std::abort();
      ::raise(SIGSTOP);
      ready.join();
    });
    int status = 0;
    ::waitpid(helper, &status, 0);
    if (status == 0) std::puts("over");
  }

  TEST_CASE("a process that stood still by SIGSTOP for longer than the limit is not stuck") {
    const child_result child = run_child("child: stopped and continued");
    CHECK(child.succeeded());
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(no_progress));
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // sanitizers have threads of their own
  TEST_CASE("in an idle program the overseer rests; a waking worker rings for it") {
    vigil::runtime rt(watched(2, 8ms));
    auto come = vigil::make_channel<int>();
    auto gone = vigil::make_channel<bool>();
    attention paid;
    std::thread outside([&] {
      for (int i = 0; i < 3; ++i) {
        paid.await_rest();
        come.send(i);
        if (!*gone.recv()) std::abort();
      }
    });
    const auto guard = rt.make_work_guard();
    rt.run([&] {
      paid.begins();
      for (int i = 0; i < 3; ++i) {
        CHECK(come.recv() == i);
        gone.send(paid.is_paid());
      }
    });
    outside.join();
  }

  TEST_CASE("a worker that is stuck after all have slept is reported") {
    const child_result stuck = run_child("child: stuck after all have slept");
    CHECK(stuck.succeeded());
    CHECK(count_of(stuck.output, no_progress) == 1);
    CHECK(stuck.says("(late) [running, for "));
  }

  TEST_CASE("child: deadlock in a program that was idle" * doctest::skip()) {
    vigil::runtime rt(watched(2, 8ms));
    auto come = vigil::make_channel<int>();
    std::optional<vigil::work_guard> guard(rt.make_work_guard());
    attention paid;
    std::thread outside([&] {
      paid.await_rest();
      come.send(1);
    });
    try {
      rt.run([&] {
        paid.begins();
        come.recv();
        outside.join();
        guard.reset();
        come.recv();
      });
    } catch (const vigil::deadlock&) {
      std::puts("thrown");
    }
  }

  TEST_CASE("the overseer hides no deadlock, whether it rests or looks") {
    if (is_deadlock_hidden()) return;
    const child_result child = run_child("child: deadlock in a program that was idle");
    CHECK(child.succeeded());
    CHECK(child.says("thrown"));
  }
#endif
}
