// How a program dies: each death says who, where and what to do.
#include "support/child.hpp"
#include "support/handler_watch.hpp"
#include "support/in_runtime.hpp"

#include <vigil/blocking.hpp>
#include <vigil/channel.hpp>
#include <vigil/testing.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::sleep_for;
using vigil::spawn;

namespace {

vigil::options two_workers() {
  vigil::options o;
  o.workers = 2;
  return o;
}

[[gnu::noinline]] void throw_one() {
  throw 1;
}

}  // namespace

TEST_SUITE("unhandled exception") {
  TEST_CASE("child: throws from go" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      vigil::go([] {
        vigil::this_fiber::set_name("thrower");
        throw std::runtime_error("planted");
      });
      sleep_for(1h);
    });
  }

  TEST_CASE("child: throws from a callback" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      vigil::after_func(1ms, [] { throw std::runtime_error("planted"); });
      sleep_for(1h);
    });
  }

  TEST_CASE("child: throws from every" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      vigil::every(1ms, [] { throw std::runtime_error("planted"); });
      sleep_for(1h);
    });
  }

  TEST_CASE("child: throws an int" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      vigil::go([] { throw 5; });
      sleep_for(1h);
    });
  }

  // Go: TestPanicTraceback.
  TEST_CASE("ends the program with its text and where the fiber was started") {
    for (const char* const from : {"go", "a callback", "every"}) {
      const auto name = std::string("child: throws from ") + from;
      const child_result r = run_child(name.c_str());
      CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
      CHECK_MESSAGE(r.says("planted"), r.output);
      CHECK_MESSAGE(r.says("death_test.cpp:"), r.output);
    }
    CHECK(run_child("child: throws from go").says("thrower"));
    const child_result r = run_child("child: throws an int");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("death_test.cpp:"));
  }
}

TEST_SUITE("fork") {
  TEST_CASE("child: forks and calls go" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      const pid_t child = ::fork();
      if (child == 0) {
        vigil::go([] {});
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      std::printf("its child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    });
  }

  TEST_CASE("child: forks and calls run" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      const pid_t child = ::fork();
      if (child == 0) {
        vigil::run([] {});
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      std::printf("its child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    });
  }

  TEST_CASE("child: forks beside a side pool and calls run" * doctest::skip()) {
    vigil::blocking_pool pool;
    vigil::run(two_workers(), [&] { vigil::blocking(pool, [] {}); });
    const pid_t child = ::fork();
    if (child == 0) {
      vigil::run([] {});
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    std::printf("its child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  }

  TEST_CASE("child: forks beside another thread's run and calls run" * doctest::skip()) {
    std::atomic<bool> begun{false};
    vigil::runtime rt;
    std::thread other([&] {
      rt.run([&] {
        begun.store(true);
        sleep_for(24h);
      });
    });
    while (!begun.load())
      std::this_thread::yield();
    const pid_t child = ::fork();
    if (child == 0) {
      vigil::run([] {});
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    std::printf("its child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    rt.request_stop();
    other.join();
  }

  TEST_CASE("child: forks after a run and does everything" * doctest::skip()) {
    vigil::runtime rt(two_workers());
    const auto all = [&rt] {
      int sum = rt.run([] {
        auto f = spawn([] {
          sleep_for(1ms);
          return 1;
        });
        return f.join() + vigil::blocking([] { return 2; });
      });
      sum += vigil::run(two_workers(), [] {
        vigil::blocking_pool pool;
        const auto answers = vigil::make_channel<int>();
        vigil::after_func(1ms, [answers] { answers.send(4); });
        return *answers.recv() + vigil::blocking(pool, [] { return 8; });
      });
      vigil::testing::run_virtual([&sum] {
        sleep_for(1h);
        sum += 16;
      });
      return sum;
    };
    {
      // One whose threads end before the fork.
      vigil::run(two_workers(), [] { vigil::blocking([] {}); });
    }
    vigil::run(two_workers(), [] { sleep_for(1ms); });
    const pid_t child = ::fork();
    if (child == 0) {
      const int sum = all();
      const pid_t grandchild = ::fork();
      if (grandchild == 0) ::_exit(sum + 1);
      int status = 0;
      ::waitpid(grandchild, &status, 0);
      ::_exit(WIFEXITED(status) && WEXITSTATUS(status) == sum + 1 ? sum : 99);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    std::printf("its child: %d, itself: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, all());
  }

  TEST_CASE(
      "while no runtime runs, and no side pool has threads, leaves a child that may run one") {
    const child_result r = run_child("child: forks after a run and does everything");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("its child: 31, itself: 31"), r.output);
  }

  TEST_CASE("child: forks and sleeps" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      const pid_t child = ::fork();
      if (child == 0) {
        sleep_for(1ms);
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      std::printf("its child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    });
  }

  TEST_CASE("child: forks and arms a timer" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      const pid_t child = ::fork();
      if (child == 0) {
        vigil::after_func(1ms, [] {});
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      std::printf("its child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    });
  }

  TEST_CASE("the child's first call ends it loudly and the parent goes on") {
    for (const char* const what : {"and calls go",
                                   "and calls run",
                                   "and sleeps",
                                   "and arms a timer",
                                   "beside a side pool and calls run",
                                   "beside another thread's run and calls run"}) {
      const auto name = std::string("child: forks ") + what;
      const child_result r = run_child(name.c_str());
      CHECK_MESSAGE(r.succeeded(), r.output);
      CHECK_MESSAGE(r.says(("its child: " + std::to_string(SIGABRT)).c_str()), what, r.output);
      CHECK_MESSAGE(r.says("in a forked child"), what, r.output);
    }
  }

  TEST_CASE("child: forks and execs" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      const pid_t child = ::fork();
      if (child == 0) {
        ::execl("/bin/echo", "echo", "from exec", static_cast<char*>(nullptr));
        ::_exit(1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      sleep_for(1ms);
    });
  }

  TEST_CASE("followed by exec is fine") {
    const child_result r = run_child("child: forks and execs");
    CHECK(r.succeeded());
    CHECK(r.says("from exec"));
  }
}

#ifndef VIGIL_TEST_UNDER_SANITIZER
namespace {

[[gnu::noinline]] int dig(int depth) {
  volatile char room[512];
  room[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : dig(depth - 1) + room[0];
}

}  // namespace

TEST_SUITE("stack overflow") {
  TEST_CASE("child: digs too deep" * doctest::skip()) {
    vigil::run(two_workers(), [] {
      auto f = spawn(vigil::fiber_options{.stack_size = 0, .name = "digger"},
                     [] { return dig(1'000'000); });
      f.join();
    });
  }

  TEST_CASE("is reported with the number and the name of the fiber") {
    const child_result r = run_child("child: digs too deep");
    CHECK_MESSAGE(r.died_by(SIGABRT) != r.died_by(SIGSEGV), r.output);
    CHECK_MESSAGE(r.says("digger"), r.output);
    CHECK_MESSAGE(r.says("stack"), r.output);
  }

  TEST_CASE("a fiber that stays within its stack is left alone") {
    in_runtime({.workers = {1, 2}}, [] { CHECK(spawn([] { return dig(100); }).join() != 1); });
  }
}
#endif

namespace {

// A result of a group. None may die while other fibers of the group may go on.
struct kept_result {
  inline static std::atomic<bool> program_ends{false};

  kept_result() = default;
  kept_result(kept_result&&) = default;

  ~kept_result() {
    if (program_ends.load()) ::_exit(8);
  }
};

}  // namespace

TEST_SUITE("std::exit on a fiber") {
  TEST_CASE("child: exits with a static runtime" * doctest::skip()) {
    // Another run before, since what is static dies in the reverse order.
    vigil::run(two_workers(), [] {});
    static vigil::fiber<> own;
    static vigil::group group;
    static vigil::group_of<kept_result> results({.limit = 1});
    static vigil::runtime rt(two_workers());
    const std::string where = std::getenv("VIGIL_TEST_WHERE");
    rt.run([&] {
      if (where == "own") {
        const auto is_stored = vigil::make_channel<bool>();
        own = spawn([is_stored] {
          is_stored.recv();
          std::exit(7);
        });
        is_stored.send(true);
      }
      if (where == "group") group.go([] { std::exit(7); });
      if (where == "group_of") {
        results.go([] { return kept_result(); });
        // In the place of the first, whose result is there.
        results.go([]() -> kept_result {
          kept_result::program_ends.store(true);
          std::exit(7);
        });
      }
      if (where == "main") std::exit(7);
      if (where == "callback") vigil::after_func(0s, [] { std::exit(7); });
      if (where == "fiber") vigil::go([] { std::exit(7); });
      sleep_for(1h);
    });
  }

  TEST_CASE("child: forks beside a static group and fiber and exits in the child" *
            doctest::skip()) {
    vigil::run(two_workers(), [] {});
    static vigil::group group;
    static vigil::fiber<> fiber;
    static vigil::runtime rt(two_workers());
    rt.run([] {
      group.go([] { sleep_for(1h); });
      fiber = vigil::spawn([] { sleep_for(1h); });
      const pid_t child = ::fork();
      if (child == 0) std::exit(7);
      int status = 0;
      ::waitpid(child, &status, 0);
      std::printf("its child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
      std::fflush(stdout);
      ::_exit(0);
    });
  }

  TEST_CASE(
      "in a forked child ends it with its code although a static group has fibers, and a static "
      "handle") {
    const child_result r =
        run_child("child: forks beside a static group and fiber and exits in the child",
                  {{"LSAN_OPTIONS", "detect_leaks=0"}});
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("its child: 7"), r.output);
  }

  TEST_CASE("ends the program with its code although a static runtime is running") {
    for (const char* const where : {"main", "fiber", "callback", "own", "group", "group_of"}) {
      // LeakSanitizer looks through the stack that exit() is called on, and takes
      // what lies on main()'s own for lost.
      const child_result r =
          run_child("child: exits with a static runtime",
                    {{"VIGIL_TEST_WHERE", where}, {"LSAN_OPTIONS", "detect_leaks=0"}});
      CHECK_MESSAGE(WIFEXITED(r.status), where, "\n", r.output);
      CHECK(WEXITSTATUS(r.status) == 7);
    }
  }
}

// With a name that clears the screen, if a terminal sees it.
TEST_SUITE("a fiber's name") {
  TEST_CASE("child: says something about a fiber" * doctest::skip()) {
    const std::string what = std::getenv("VIGIL_TEST_WHERE");
    const vigil::fiber_options named{.name = "a\x1b[2J\nb"};
    vigil::options o = two_workers();
    if (what == "slow") o.slow_fiber = 1ns;
    o.stop_limit = 0s;
    vigil::run(o, [&] {
      if (what == "uncaught") {
        vigil::go([&] {
          vigil::this_fiber::set_name(named.name);
          throw std::runtime_error("planted");
        });
      }
      if (what == "detached") spawn(named, [] { throw std::runtime_error("planted"); }).detach();
      if (what == "slow") spawn(named, [] { vigil::this_fiber::yield(); }).join();
      if (what == "no_park") {
        spawn(named, [] {
          const vigil::this_fiber::no_park held;
          sleep_for(1h);
        }).join();
      }
      if (what == "pin") {
        std::optional<vigil::this_fiber::pin> pin;
        pin.emplace();
        spawn(named, [&] { pin.reset(); }).join();
      }
      if (what == "handle") {
        vigil::fiber<> own;
        own = spawn(named, [&own] {
          vigil::this_fiber::yield();  // until it is there
          own = {};
        });
        sleep_for(1h);
      }
      if (what == "swallowed") {
        auto f = spawn(named, [] {
          for (;;) {
            try {
              sleep_for(1h);
            } catch (const vigil::stopped&) {
            }
          }
        });
        f.request_stop();
        f.join();
      }
      if (what == "shielded") {
        spawn(named, [] {
          const vigil::this_fiber::shield whole;
          vigil::runtime::current().request_stop();
          sleep_for(1h);
        }).join();
      }
      if (what != "slow") sleep_for(1h);
    });
  }

  TEST_CASE("is escaped wherever it is written") {
    for (const char* const what :
         {"uncaught", "detached", "slow", "no_park", "pin", "handle", "swallowed", "shielded"}) {
      const child_result r =
          run_child("child: says something about a fiber", {{"VIGIL_TEST_WHERE", what}});
      CHECK_MESSAGE(r.says("(a\\x1b[2J\\nb"), what, "\n", r.output);
      CHECK_MESSAGE(!r.says("\x1b[2J"), what);
    }
  }
}

TEST_SUITE("misuse") {
  TEST_CASE("child: destroys a runtime that runs" * doctest::skip()) {
    auto* const rt = new vigil::runtime(two_workers());
    rt->run([&] { std::thread([&] { delete rt; }).join(); });
  }

  TEST_CASE("a runtime destroyed while it runs ends the program") {
    const child_result r = run_child("child: destroys a runtime that runs");
    CHECK(r.died_by(SIGABRT));
    CHECK_MESSAGE(r.says("wait for run() to return"), r.output);
  }

  TEST_CASE("child: std::terminate on a fiber" * doctest::skip()) {
    std::set_terminate([] {
      std::puts("the program's own handler");
      std::fflush(stdout);
      std::abort();
    });
    vigil::run(two_workers(), [] { spawn([]() noexcept { throw_one(); }).join(); });
  }

  TEST_CASE("std::terminate for other reasons reaches the program's handler") {
    const child_result r = run_child("child: std::terminate on a fiber");
    CHECK(r.died_by(SIGABRT));
    CHECK_MESSAGE(r.says("the program's own handler"), r.output);
  }
}

namespace {

// What make() returns dies in a handler of its runtime.
template <class Make>
void dies_in_a_handler(Make make) {
  ::alarm(20);  // of real time: ends a program that hangs
  vigil::options o;
  o.workers = 1;
  vigil::run(o, [&make] {
    auto owned = std::make_shared<std::optional<decltype(make())>>(make());
    handle_with([owned] { owned->reset(); });
    sleep_for(1h);
  });
}

}  // namespace

// On its own stack a worker runs no fiber while it waits.
TEST_SUITE("a handler that would wait") {
  TEST_CASE("child: a fiber's last handle dies in a handler" * doctest::skip()) {
    dies_in_a_handler([] {
      return spawn({.name = "kept"}, [] {
        const vigil::this_fiber::shield whole;
        sleep_for(1h);
      });
    });
  }

  TEST_CASE("for the end of a fiber ends the program by name") {
    const child_result r = run_child("child: a fiber's last handle dies in a handler");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("(kept): its last handle dies on a worker's own stack"));
    CHECK(r.says("detach() it first"));
  }

  TEST_CASE("child: a scoped_timer ends in a handler" * doctest::skip()) {
    dies_in_a_handler(
        [] { return vigil::scoped_timer(vigil::after_func(0s, [] { sleep_for(1h); })); });
  }

  TEST_CASE("for a timer's callback ends the program by name, after a second") {
    const child_result r = run_child("child: a scoped_timer ends in a handler");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("has waited 1 s for the callback of the timer made at "));
    CHECK(r.says("death_test.cpp:"));
  }
}
