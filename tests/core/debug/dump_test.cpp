#include "support/child.hpp"
#include "support/dumped.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::sleep_for;
using vigil::spawn;

namespace {

// The line that contains `part`; empty if there is none.
std::string line_with(const std::string& text, const std::string& part) {
  const auto at = text.find(part);
  if (at == std::string::npos) return "";
  const auto begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

vigil::fiber_options named(std::string_view name) {
  return {.stack_size = 0, .name = name};
}

}  // namespace

TEST_SUITE("dump") {
  // Node, libuv: walk_handles.
  TEST_CASE("counts a timer while it is pending, and no longer") {
    in_virtual([] {
      const auto says = [](const char* text) { return dumped().find(text) != std::string::npos; };
      CHECK(says(" 0 timers pending"));
      const auto soon = vigil::after_func(1s, [] {});
      const auto late = vigil::after_func(1h, [] {});
      CHECK(says(" 2 timers pending"));
      sleep_for(2s);
      CHECK(says(" 1 timers pending"));
      late.stop();
      CHECK(says(" 0 timers pending"));
    });
  }

  TEST_CASE("says when the next deadline is, or was while a fiber computes") {
    in_runtime({.workers = {1}}, [] {
      const auto late = vigil::after_func(1h, [] {});
      CHECK(has(dumped(), "; next deadline in 3"));
      const auto soon = vigil::after_func(1ns, [] {});
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() == begin) {
      }
      const std::string line = line_with(dumped(), "; next deadline ");
      CHECK_MESSAGE(line.ends_with(" ago"), line);
      soon.stop();
      late.stop();
    });
  }

  TEST_CASE("shows a fiber's place of start, with up to eight arguments, with and without a name") {
    in_virtual([] {
      const auto nap = [](auto... length) { (sleep_for(length), ...); };
      const auto none = spawn(nap);
      const auto three = spawn(nap, 1h, 1h, 1h);
      const auto eight = spawn(nap, 1h, 1h, 1h, 1h, 1h, 1h, 1h, 1h);
      const auto how = spawn(named("as asked"), nap);
      const auto how_two = spawn(named("with two"), nap, 1h, 1h);
      const auto how_eight = spawn(named("with eight"), nap, 1h, 1h, 1h, 1h, 1h, 1h, 1h, 1h);
      vigil::go(nap, 1h, 1h);
      vigil::go(nap, 1h, 1h, 1h);
      vigil::go(nap, 1h, 1h, 1h, 1h, 1h, 1h, 1h, 1h);
      const int line = __LINE__;
      const std::string text = dumped();
      for (int back = 1; back <= 9; ++back)
        CHECK(text.find("dump_test.cpp:" + std::to_string(line - back)) != std::string::npos);
      CHECK_FALSE(has(text, "fiber.hpp"));
    });
  }

  TEST_CASE("a fiber may be started with more than eight arguments") {
    in_virtual([] {
      const auto sum = [](auto... n) { return (n + ...); };
      CHECK(spawn(sum, 1, 2, 3, 4, 5, 6, 7, 8, 9).join() == 45);
      CHECK(spawn(named("sum"), sum, 1, 2, 3, 4, 5, 6, 7, 8, 9).join() == 45);
      int total = 0;
      vigil::go([&total](auto... n) { total = (n + ...); }, 1, 2, 3, 4, 5, 6, 7, 8, 9);
      vigil::testing::settle();
      CHECK(total == 45);
    });
  }

  // Node, libuv: walk_handles.
  TEST_CASE("names each fiber, why it waits, since when, until when, and where it was started") {
    in_virtual([] {
      auto sleeper = spawn(named("sleeper"), [] { sleep_for(10s); });
      const std::string at = "dump_test.cpp:" + std::to_string(__LINE__ - 1);
      auto joiner = spawn(named("joiner"), [&] { static_cast<void>(sleeper.join_for(1h)); });
      auto runnable = spawn(named("runnable"), [] {});
      auto slow = vigil::after_func(0s, [] { sleep_for(1h); });
      sleep_for(4s);
      auto waiting = spawn(named("waiting"), [&] {
        const vigil::this_fiber::pin here;
        slow.stop_and_wait();
      });
      auto patient = spawn(named("patient"), [&] { static_cast<void>(waiting.join_for(90s)); });
      vigil::testing::settle();
      auto fresh = spawn(named("fresh"), [] {});
      const std::string text = dumped();

      const std::string asleep = line_with(text, "(sleeper)");
      CHECK_MESSAGE(has(asleep, "parked: sleep, for 4.000 s, due in 6.000 s"), text);
      CHECK_MESSAGE(has(asleep, at), text);
      CHECK_MESSAGE(has(asleep, "fiber " + std::to_string(sleeper.id()) + " "), text);
      CHECK_MESSAGE(
          has(line_with(text, "(joiner)"), "parked: join, for 4.000 s, due in 3596.000 s]"), text);
      CHECK_MESSAGE(has(line_with(text, "(waiting)"), "parked: stop_and_wait"), text);
      CHECK_MESSAGE(has(line_with(text, "(patient)"), "join, for 0.000 s, due in 90.000 s"), text);
      CHECK_MESSAGE(has(line_with(text, "(fresh)"), "runnable"), text);
      CHECK_MESSAGE(has(line_with(text, "(main)"), "[running, for "), text);
      CHECK_MESSAGE(has(line_with(text, "(waiting)"), ", pinned]"), text);
      CHECK_MESSAGE(has(line_with(text, "timer fiber"), "timers"), text);
      CHECK_FALSE(has(text, "(runnable)]"));
      // The callback that sleeps carries the place where its timer was made.
      CHECK_MESSAGE(has(line_with(text, "(callbacks) [parked: sleep"), "dump_test.cpp:"), text);
      CHECK_MESSAGE(has(text, "1 workers"), text);
      CHECK_MESSAGE(has(text, "4 timers pending"), text);
      sleeper.request_stop();
      waiting.request_stop();
    });
  }

  TEST_CASE("writes a fiber's name so that it cannot end its line or steer a terminal") {
    in_virtual([] {
      auto f = spawn(named("a\n(b)\\\t\x1b[2J\x7f\xc3\xa4"), [] { sleep_for(1h); });
      vigil::testing::settle();
      const std::string text = dumped();
      CHECK_MESSAGE(has(text, "(a\\n(b)\\\\\\t\\x1b[2J\\x7f\xc3\xa4) [parked: sleep"), text);
      f.request_stop();
    });
  }

  TEST_CASE("a fiber that is asked to stop is marked") {
    in_virtual([] {
      auto f = spawn(named("asked"), [] {
        const vigil::this_fiber::shield shield;
        sleep_for(1s);
      });
      vigil::testing::settle();
      f.request_stop();
      CHECK(has(line_with(dumped(), "(asked)"), "stop requested"));
      f.join();
    });
  }

  // Go: TestNumGoroutine.
  TEST_CASE("counts as many fibers as stats, including vigil's own, and lists some of a kind") {
    in_virtual([] {
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 57; ++i)
        fibers.push_back(spawn(named("counted"), [] { sleep_for(1s); }));
      vigil::testing::settle();
      const std::string text = dumped();
      std::size_t lines = 0;
      for (auto at = text.find("(counted)"); at != std::string::npos;
           at = text.find("(counted)", at + 1)) {
        ++lines;
      }
      CHECK(lines == 20);
      CHECK(has(text, "vigil: fibers\n  57 [parked: sleep, for at most 0.000 s] started at "));
      CHECK(has(text, "\n... and 37 more\n"));
      CHECK(vigil::stats().fibers_alive == 58);
      CHECK(has(text, "60 fibers"));  // including main, the timer fiber and a runner
      for (auto& f : fibers)
        f.join();
    });
  }

  TEST_CASE("an ended fiber is absent, or shown as ended while its handle is kept") {
    in_virtual([] {
      auto kept = spawn(named("kept"), [] {});
      spawn(named("joined"), [] {}).join();
      vigil::testing::settle();
      const std::string text = dumped();
      CHECK_FALSE(has(text, "(joined)"));
      CHECK(has(line_with(text, "(kept)"), "ended"));
      kept.join();
      CHECK_FALSE(has(dumped(), "(kept)"));
    });
  }

  TEST_CASE("works on a plain thread, with no runtime, and while everything moves") {
    CHECK(has(dumped(), "0 fibers"));
    in_runtime({.workers = {2}}, [] {
      std::atomic<bool> done{false};
      std::thread dumper([&] {
        for (int i = 0; i < rounds(200); ++i)
          CHECK(has(dumped(), "fibers\n"));
        done.store(true);
      });
      while (!done.load()) {
        std::vector<vigil::fiber<>> fibers;
        for (int i = 0; i < 20; ++i) {
          fibers.push_back(spawn(named("moving"), [] { sleep_for(10us); }));
        }
        for (auto& f : fibers)
          f.join();
      }
      dumper.join();
    });
  }

  TEST_CASE("shows at most ten thousand fibers and counts the rest") {
    in_virtual([] {
      for (int i = 0; i < 10'050; ++i) {
        vigil::go([] { sleep_for(1s); });
      }
      vigil::testing::settle();
      CHECK(has(dumped(), "more\n"));
      sleep_for(2s);
    });
  }
}

TEST_SUITE("SIGQUIT") {
  TEST_CASE("child: is stuck on every worker" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      std::atomic<int> stuck{0};
      std::atomic<bool> done{false};
      const auto compute = [&] {
        stuck.fetch_add(1);
        while (!done.load()) {
        }
      };
      auto sleeper = spawn(named("sleeping one"), [] { sleep_for(1h); });
      sleep_for(1ms);
      auto other = spawn(named("stuck one"), compute);
      std::thread asker([&] {
        while (stuck.load() != 2)
          std::this_thread::yield();
        std::raise(SIGQUIT);
        ::kill(::getpid(), SIGQUIT);
        done.store(true);
      });
      vigil::this_fiber::set_name("stuck main");
      compute();
      asker.join();
      other.join();
    });
    std::puts("went on");
  }

  TEST_CASE("dumps although every worker is stuck in a computation, and the program goes on") {
    const child_result r = run_child("child: is stuck on every worker");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(has(line_with(r.output, "(stuck main)"), "running"), r.output);
    CHECK_MESSAGE(has(line_with(r.output, "(stuck one)"), "running"), r.output);
    CHECK_MESSAGE(has(line_with(r.output, "(sleeping one)"), "parked: sleep"), r.output);
    CHECK(r.says("runtime 1: 2 workers"));
    CHECK(r.says("went on"));
  }

  TEST_CASE("child: writes the dump to a pipe without a reader" * doctest::skip()) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    ::close(ends[0]);
    ::dup2(ends[1], 2);
    vigil::run([] { std::raise(SIGQUIT); });
    std::puts("went on");
  }

  TEST_CASE("does not end a program whose standard error nobody reads") {
    const child_result r = run_child("child: writes the dump to a pipe without a reader");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("went on"));
  }

  TEST_CASE("waits for the reader of a standard error that does not block") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    REQUIRE(::fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096);
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    std::string read;
    std::thread reader([&] {
      // The pipe is full before it is read.
      for (int queued = 0; queued < 4096;)
        ::ioctl(ends[0], FIONREAD, &queued);
      char part[512];
      for (ssize_t n = 0; (n = ::read(ends[0], part, sizeof part)) > 0;)
        read.append(part, static_cast<std::size_t>(n));
    });
    const int standard_error = ::dup(2);
    std::signal(SIGQUIT, SIG_DFL);
    vigil::run([&] {
      std::vector<vigil::fiber<>> all;
      const auto nap = [] { sleep_for(1h); };
      // Twenty of a kind have a line, so there are three kinds.
      for (int i = 0; i < 100; ++i) {
        all.push_back(spawn(named("one of many"), nap));
        all.push_back(spawn(named("one of many"), nap));
        all.push_back(spawn(named("one of many"), nap));
      }
      vigil::this_fiber::yield();
      ::dup2(ends[1], 2);
      std::raise(SIGQUIT);
      ::dup2(standard_error, 2);
      for (auto& f : all)
        f.request_stop();
    });
    ::close(standard_error);
    ::close(ends[1]);
    reader.join();
    ::close(ends[0]);
    std::size_t lines = 0;
    for (std::size_t at = 0; (at = read.find("(one of many)", at)) != std::string::npos; ++at)
      ++lines;
    CHECK(lines >= 60);  // those that have not begun yet are of another kind
    CHECK(lines < 300);
    CHECK(has(read, "runtime "));
  }

  TEST_CASE("child: has a handler for SIGQUIT" * doctest::skip()) {
    std::signal(SIGQUIT, [](int) {
      if (::write(1, "mine\n", 5) < 0) return;
    });
    vigil::run([] { std::raise(SIGQUIT); });
  }

  TEST_CASE("is left alone if the program has a handler of its own") {
    const child_result r = run_child("child: has a handler for SIGQUIT");
    CHECK(r.succeeded());
    CHECK(r.says("mine"));
    CHECK_FALSE(r.says("vigil: fibers"));
  }

  TEST_CASE("child: turned the dump off" * doctest::skip()) {
    vigil::options o;
    o.dump_on_sigquit = false;
    vigil::run(o, [] { std::raise(SIGQUIT); });
  }

  TEST_CASE("ends the program if the dump is turned off, or no runtime runs") {
    CHECK(run_child("child: turned the dump off").died_by(SIGQUIT));
  }
}
