// How a program dies: the message names the fiber, the place and the remedy.
#include "core/runtime/runtime_test.hpp"
#include "support/error_output.hpp"
#include "support/handler_watch.hpp"

#include <vigil/blocking.hpp>
#include <vigil/testing.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include <unistd.h>

using namespace vigil::testing_support;

namespace {

[[gnu::noinline]] void throw_one() {
  throw 1;
}

}  // namespace

TEST_SUITE("unhandled exception") {
  TEST_CASE("child: throws from go" * doctest::skip()) {
    vigil::run(with_workers(2), [] {
      vigil::go([] {
        vigil::this_fiber::set_name("thrower");
        throw std::runtime_error("planted");
      });
      sleep_for(1h);
    });
  }

  TEST_CASE("child: throws from a callback" * doctest::skip()) {
    vigil::run(with_workers(2), [] {
      vigil::after_func(1ms, [] { throw std::runtime_error("planted"); });
      sleep_for(1h);
    });
  }

  TEST_CASE("child: throws from every" * doctest::skip()) {
    vigil::run(with_workers(2), [] {
      vigil::every(1ms, [] { throw std::runtime_error("planted"); });
      sleep_for(1h);
    });
  }

  TEST_CASE("child: throws an int" * doctest::skip()) {
    vigil::run(with_workers(2), [] {
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
    vigil::run(with_workers(2), [] {
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

  TEST_CASE("child: one of three digs too deep" * doctest::skip()) {
    const std::string who = std::getenv("VIGIL_TEST_WHO");
    vigil::run(with_workers(2), [&] {
      if (who == "main") dig(1'000'000);
      if (who == "callback") vigil::after_func(0s, [] { dig(1'000'000); });
      if (who == "fiber") vigil::go([] { dig(1'000'000); });
      sleep_for(1h);
    });
  }

  TEST_CASE("names the setting that gives the stack its size") {
    const auto says = [](const char* who, const char* setting) {
      const child_result r =
          run_child("child: one of three digs too deep", {{"VIGIL_TEST_WHO", who}});
      const bool named = r.says((std::string("give it more with ") + setting + ",").c_str());
      CHECK_MESSAGE(named, who, "\n", r.output);
    };
    says("main", "options::main_stack_size");
    says("callback", "options::stack_size");
    says("fiber", "fiber_options::stack_size");
  }

  TEST_CASE("a fiber that stays within its stack is unaffected") {
    in_runtime({.workers = {1, 2}}, [] { CHECK(spawn([] { return dig(100); }).join() != 1); });
  }
}
#endif

// The name clears the screen if a terminal sees it.
TEST_SUITE("a fiber's name") {
  TEST_CASE("child: says something about a fiber" * doctest::skip()) {
    const std::string what = std::getenv("VIGIL_TEST_WHERE");
    const bool has_name = std::getenv("VIGIL_TEST_UNNAMED") == nullptr;
    const vigil::fiber_options named{.name = has_name ? "a\x1b[2J\nb" : ""};
    // The handle is there before its fiber begins if one worker runs both.
    vigil::options o = with_workers(what == "handle" ? 1 : 2);
    if (what == "slow") o.slow_fiber = 1ns;
    std::optional<error_output> said;  // an abort may cut it off
    if (what == "slow") said.emplace();
    o.stop_limit = 0s;
    vigil::run(o, [&] {
      if (what == "uncaught") {
        vigil::go([&] {
          vigil::this_fiber::set_name(named.name);
          throw std::runtime_error("planted");
        });
      }
      if (what == "detached") spawn(named, [] { throw std::runtime_error("planted"); }).detach();
      if (what == "slow") {
        spawn(named, [&] {
          while (!said->has(", started at " __FILE__)) {
          }
        }).join();
      }
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
        own = spawn(named, [&own] { own = {}; });
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

  TEST_CASE("that is not there leaves no empty place") {
    for (const char* const what :
         {"uncaught", "detached", "slow", "no_park", "pin", "handle", "swallowed", "shielded"}) {
      const child_result r = run_child("child: says something about a fiber",
                                       {{"VIGIL_TEST_WHERE", what}, {"VIGIL_TEST_UNNAMED", "1"}});
      CHECK_MESSAGE(r.says("fiber "), what, "\n", r.output);
      for (const char* const empty : {" (,", " ()", " ( "})
        CHECK_MESSAGE(!r.says(empty), what, "\n", r.output);
    }
  }
}

TEST_SUITE("misuse") {
  TEST_CASE("child: destroys a runtime that runs" * doctest::skip()) {
    auto* const rt = new vigil::runtime(with_workers(2));
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
    vigil::run(with_workers(2), [] { spawn([]() noexcept { throw_one(); }).join(); });
  }

  TEST_CASE("std::terminate for other reasons reaches the program's handler") {
    const child_result r = run_child("child: std::terminate on a fiber");
    CHECK(r.died_by(SIGABRT));
    CHECK_MESSAGE(r.says("the program's own handler"), r.output);
  }
}

namespace {

// The value that make() returns is destroyed in a handler of its runtime.
template <class Make>
void dies_in_a_handler(Make make) {
  ::alarm(300);  // real time: ends a program that hangs
  vigil::options o;
  o.workers = 1;
  vigil::run(o, [&make] {
    auto owned = std::make_shared<std::optional<decltype(make())>>(make());
    handle_with([owned] { owned->reset(); });
    sleep_for(1h);
  });
}

}  // namespace

// A worker that waits on its own stack runs no fiber meanwhile.
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
