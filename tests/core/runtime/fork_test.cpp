// fork() and std::exit() in programs with a runtime.
#include "core/runtime/with_workers.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"

#include <vigil/blocking.hpp>
#include <vigil/channel.hpp>
#include <vigil/testing.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::sleep_for;
using vigil::spawn;

TEST_SUITE("fork") {
  TEST_CASE("child: forks and calls go" * doctest::skip()) {
    vigil::run(with_workers(2), [] {
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
    vigil::run(with_workers(2), [] {
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
    vigil::run(with_workers(2), [&] { vigil::blocking(pool, [] {}); });
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
    vigil::runtime rt(with_workers(2));
    const auto all = [&rt] {
      int sum = rt.run([] {
        auto f = spawn([] {
          sleep_for(1ms);
          return 1;
        });
        return f.join() + vigil::blocking([] { return 2; });
      });
      sum += vigil::run(with_workers(2), [] {
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
      // A run whose threads end before the fork.
      vigil::run(with_workers(2), [] { vigil::blocking([] {}); });
    }
    vigil::run(with_workers(2), [] { sleep_for(1ms); });
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
    vigil::run(with_workers(2), [] {
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
    vigil::run(with_workers(2), [] {
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
    vigil::run(with_workers(2), [] {
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

  TEST_CASE("followed by exec works") {
    const child_result r = run_child("child: forks and execs");
    CHECK(r.succeeded());
    CHECK(r.says("from exec"));
  }
}

namespace {

// A result of a group. None may be destroyed while other fibers of the group may go on.
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
    // Another run comes first, since statics are destroyed in reverse order.
    vigil::run(with_workers(2), [] {});
    static vigil::fiber<> own;
    static vigil::group group;
    static vigil::group_of<kept_result> results({.limit = 1});
    static vigil::runtime rt(with_workers(2));
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
        // Takes the slot of the first fiber, whose result is there.
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
    vigil::run(with_workers(2), [] {});
    static vigil::group group;
    static vigil::fiber<> fiber;
    static vigil::runtime rt(with_workers(2));
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

  TEST_CASE("in a forked child ends it with its code despite fibers of static groups and handles") {
    const child_result r =
        run_child("child: forks beside a static group and fiber and exits in the child",
                  {{"LSAN_OPTIONS", "detect_leaks=0"}});
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("its child: 7"), r.output);
  }

  TEST_CASE("ends the program with its code although a static runtime is running") {
    for (const char* const where : {"main", "fiber", "callback", "own", "group", "group_of"}) {
      // LeakSanitizer searches the stack on which exit() is called, and reports as lost
      // what only main()'s own stack refers to.
      const child_result r =
          run_child("child: exits with a static runtime",
                    {{"VIGIL_TEST_WHERE", where}, {"LSAN_OPTIONS", "detect_leaks=0"}});
      CHECK_MESSAGE(WIFEXITED(r.status), where, "\n", r.output);
      CHECK(WEXITSTATUS(r.status) == 7);
    }
  }
}
