// fork() and std::exit() in programs with a runtime.
#include "core/runtime/with_workers.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"

#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::sleep_for;
using vigil::spawn;

namespace {

// Calls f in a child, and says which signal has ended it.
template <class F>
void fork_and(F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    f();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::printf("its child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

// A call in the child of a program with two workers, and how its end names it. None
// allocates: AddressSanitizer's allocator may be left locked in the child, by the start
// of the other worker.
struct forbidden {
  const char* what;
  const char* named;
  void (*call)(const vigil::channel<int>& empty);
};

const forbidden while_a_run_goes_on[] = {
    {"go", "vigil::go, vigil::spawn", [](const auto&) { vigil::go([] {}); }},
    {"run", "vigil::run", [](const auto&) { vigil::run([] {}); }},
    {"a sleep", "sleep_for", [](const auto&) { sleep_for(1ms); }},
    {"a timer", "vigil::after_func", [](const auto&) { vigil::after_func(1ms, [] {}); }},
    {"post", "vigil::post", [](const auto&) { vigil::post([] {}); }},
    {"a receive", "a wait", [](const auto& empty) { empty.recv(); }},
    {"a select", "a wait", [](const auto& empty) { vigil::select(vigil::on_recv(empty, [] {})); }},
    {"a lock",
     "a wait",
     [](const auto&) {
       vigil::mutex m;
       m.lock();
       m.lock();
     }},
};

}  // namespace

TEST_SUITE("fork") {
  TEST_CASE("child: forks in a run" * doctest::skip()) {
    const std::string what = std::getenv("VIGIL_TEST_WHAT");
    vigil::run(with_workers(2), [&] {
      const auto empty = vigil::make_channel<int>();
      for (const forbidden& f : while_a_run_goes_on)
        if (what == f.what) fork_and([&] { f.call(empty); });
    });
  }

  TEST_CASE("child: forks in a run with members" * doctest::skip()) {
    const std::string what = std::getenv("VIGIL_TEST_WHAT");
    vigil::runtime rt(with_workers(2));
    rt.run([&] {
      vigil::fiber<> fiber = spawn([] { sleep_for(1h); });
      auto group = std::make_unique<vigil::group>();
      group->go([] { sleep_for(1h); });
      fork_and([&] {
        if (what == "a fiber's end") fiber = vigil::fiber<>();
        if (what == "a group's end") group.reset();
        if (what == "join") fiber.join();
        if (what == "runtime::go") rt.go([] {});
        if (what == "runtime::after_func") rt.after_func(1ms, [] {});
        if (what == "runtime::post") rt.post([] {});
      });
    });
  }

  TEST_CASE("child: forks in a run and waits for nothing" * doctest::skip()) {
    vigil::run(with_workers(2), [] {
      auto ended = std::make_unique<vigil::fiber<>>(spawn([] {}));
      while (!ended->join_for(1h)) {
      }
      auto idle = std::make_unique<vigil::group>();
      const auto values = vigil::make_channel<int>(1);
      fork_and([&] {
        ended.reset();
        idle.reset();
        values.send(1);
        values.recv();
        vigil::select(vigil::on_recv(values, [] {}), vigil::otherwise([] {}));
        vigil::once().call([] {});
        vigil::mutex m;
        const std::lock_guard lock(m);
      });
    });
  }

  TEST_CASE("leaves a child in which calls that need no wait go on") {
    const child_result r = run_child("child: forks in a run and waits for nothing");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("its child: 0"), r.output);
  }

  TEST_CASE("child: forks beside a side pool and calls run" * doctest::skip()) {
    vigil::blocking_pool pool;
    vigil::run(with_workers(2), [&] { vigil::blocking(pool, [] {}); });
    fork_and([] { vigil::run([] {}); });
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
    fork_and([] { vigil::run([] {}); });
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

  // The child, not the parent, ends, and says what it may not do.
  void check_child(const child_result& r, const char* what, const char* named) {
    CHECK_MESSAGE(r.succeeded(), what, "\n", r.output);
    CHECK_MESSAGE(r.says(("its child: " + std::to_string(SIGABRT)).c_str()), what, "\n", r.output);
    CHECK_MESSAGE(
        r.says((std::string(named) + " in a forked child").c_str()), what, "\n", r.output);
  }

  TEST_CASE("the child's first wait or start ends it loudly and the parent goes on") {
    for (const forbidden& f : while_a_run_goes_on)
      check_child(
          run_child("child: forks in a run", {{"VIGIL_TEST_WHAT", f.what}}), f.what, f.named);
    for (const auto& [what, named] : {std::pair("a fiber's end", "the end of a joining handle"),
                                      std::pair("a group's end", "a wait"),
                                      std::pair("join", "a wait"),
                                      std::pair("runtime::after_func", "a call of vigil::runtime"),
                                      std::pair("runtime::go", "a call of vigil::runtime"),
                                      std::pair("runtime::post", "a call of vigil::runtime")}) {
      check_child(run_child("child: forks in a run with members", {{"VIGIL_TEST_WHAT", what}}),
                  what,
                  named);
    }
    for (const char* const what : {"beside a side pool", "beside another thread's run"}) {
      const auto name = std::string("child: forks ") + what + " and calls run";
      check_child(run_child(name.c_str()), what, "vigil::run");
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

  TEST_CASE("child: forks and exits in the child" * doctest::skip()) {
    static vigil::runtime rt(with_workers(2));
    rt.run([] {
      const pid_t child = ::fork();
      if (child == 0) std::exit(7);
      int status = 0;
      ::waitpid(child, &status, 0);
      std::printf("its child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
      std::fflush(stdout);
      ::_exit(0);
    });
  }

  TEST_CASE("in a forked child ends it with its code although a static runtime is running") {
    const child_result r =
        run_child("child: forks and exits in the child", {{"LSAN_OPTIONS", "detect_leaks=0"}});
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
