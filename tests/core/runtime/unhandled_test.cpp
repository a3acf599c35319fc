// Exceptions that leave a `go` fiber or a callback.
#include "core/runtime/runtime_test.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "support/planted_throw.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

namespace {

// Called where `throw;` rethrows an exception.
void (*at_rethrow)() = nullptr;

}  // namespace

// Replaces the compiler's function.
extern "C" void __cxxabiv1::__cxa_rethrow() {
  using function = void (*)();
  static const auto original = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "__cxa_rethrow"));
  if (at_rethrow != nullptr) at_rethrow();
  original();
  __builtin_unreachable();
}

using namespace vigil::testing_support;

namespace {

void throw_planted_from(const std::string& where) {
  if (where == "go") vigil::go([] { throw_planted(); });
  if (where == "go, after a wait") {
    vigil::go([] {
      sleep_for(1us);
      vigil::this_fiber::yield();
      throw_planted();
    });
  }
  if (where == "wait_group::go") {
    vigil::wait_group all;
    all.go([] { throw_planted(); });
    sleep_for(1h);
  }
  if (where == "after_func") vigil::after_func(1us, [] { throw_planted(); });
  if (where == "every") vigil::every(1us, [] { throw_planted(); });
  if (where == "every from_end")
    vigil::every(
        1us, [] { throw_planted(); }, vigil::from_end);
  if (where == "post") vigil::post([] { throw_planted(); });
  if (where == "defer") vigil::defer([] { throw_planted(); });
  if (where == "a context") {
    auto [ctx, cancel] = vigil::with_cancel(vigil::background());
    vigil::after_func(ctx, [] { throw_planted(); });
    cancel();
    sleep_for(1h);
  }
  if (where == "a timeout_list") {
    vigil::timeout_list list(1us, [](vigil::timeout_list::entry&) { throw_planted(); });
    vigil::timeout_list::entry entry;
    list.add(entry);
    sleep_for(1h);
  }
  sleep_for(1h);
}

}  // namespace

TEST_SUITE("unhandled exception") {
  TEST_CASE("child: throws below a destructor" * doctest::skip()) {
    std::set_terminate(&say_what_is_left);
    vigil::run(with_workers(2), [] { throw_planted_from(std::getenv("VIGIL_TEST_WHERE")); });
  }

  TEST_CASE("ends the program on the stack of the throw, with nothing unwound") {
    for (const char* const where : {"go",
                                    "go, after a wait",
                                    "wait_group::go",
                                    "after_func",
                                    "every",
                                    "every from_end",
                                    "post",
                                    "defer",
                                    "a context",
                                    "a timeout_list"}) {
      const child_result r =
          run_child("child: throws below a destructor", {{"VIGIL_TEST_WHERE", where}});
      CHECK_MESSAGE(r.died_by(SIGABRT), where, "\n", r.output);
      CHECK_MESSAGE(r.says("the throw's stack is there, its destructors have not run"),
                    where,
                    "\n",
                    r.output);
      const auto named = r.output.find("an exception has left fiber ");
      CHECK_MESSAGE(named != std::string::npos, where, "\n", r.output);
      CHECK(r.output.find("an exception has left fiber ", named + 1) == std::string::npos);
      CHECK_MESSAGE(r.says("planted"), where, "\n", r.output);
    }
  }

  TEST_CASE("child: a callback is cancelled as the shutdown begins" * doctest::skip()) {
    // The shutdown comes after the library has asked whether the exception ends the
    // program. Asking again would give "no", and the run would never end.
    at_rethrow = [] {
      vigil::detail::current_fiber()->stop_flag.store(true);
      ::alarm(300);
    };
    vigil::run(with_workers(2), [] {
      const auto it = vigil::with_cancel(vigil::background());
      it.cancel();
      vigil::after_func(1us, [ctx = it.ctx] { sleep_for(1h, ctx); });
      sleep_for(1h);
    });
  }

  TEST_CASE("cancelled, which leaves a callback, is judged once, whatever begins meanwhile") {
    const child_result r = run_child("child: a callback is cancelled as the shutdown begins");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK_MESSAGE(r.says("an exception has left fiber "), r.output);
    CHECK_MESSAGE(r.says("unhandled_test.cpp:"), r.output);
  }

  TEST_CASE("a fiber that is detached too late is named once, when it has ended") {
    const child_result r = run_child("child: throws before it is detached");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    const auto named = r.output.find("an exception has left fiber ");
    CHECK_MESSAGE(named != std::string::npos, r.output);
    CHECK(r.output.find("an exception has left fiber ", named + 1) == std::string::npos);
    CHECK(r.says("late"));
  }

  TEST_CASE("child: throws before it is detached" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      auto f = vigil::spawn({.name = "late"}, [] { throw_planted(); });
      vigil::testing::settle();
      f.detach();
    });
  }

  TEST_CASE("a stop and the end of the root context end fibers and callbacks silently") {
    int ended = 0;
    vigil::testing::run_virtual([&] {
      struct counts {
        int& n;

        ~counts() { ++n; }
      };

      vigil::go([&] {
        const counts one{ended};
        sleep_for(1h);
      });
      vigil::go([&] {
        const counts one{ended};
        sleep_for(1h, vigil::background());
      });
      vigil::after_func(1ms, [&] {
        const counts one{ended};
        sleep_for(1h);
      });
      vigil::after_func(1ms, [&] {
        const counts one{ended};
        sleep_for(1h, vigil::background());
      });
      sleep_for(2ms);
    });
    CHECK(ended == 4);
  }
}

namespace {

std::string handled;

// Ends in the shutdown, by an exception of its own.
void run_until_the_shutdown_throws(void (*on_unhandled)(std::exception_ptr), bool in_callback) {
  vigil::testing::virtual_options o;
  o.runtime.on_unhandled = on_unhandled;
  vigil::testing::run_virtual(o, [&] {
    const auto body = [] {
      try {
        sleep_for(1h);
      } catch (const vigil::stopped&) {
        throw std::runtime_error("planted");
      }
    };
    if (in_callback) {
      vigil::after_func(0s, body);
    } else {
      vigil::go(body);
    }
    sleep_for(1ms);
  });
}

}  // namespace

TEST_SUITE("on_unhandled") {
  TEST_CASE("child: waits in the shutdown" * doctest::skip()) {
    for (const bool in_callback : {false, true}) {
      run_until_the_shutdown_throws(
          [](std::exception_ptr error) {
            sleep_for(1ms);
            try {
              std::rethrow_exception(error);
            } catch (const std::exception& e) {
              handled += e.what();
            }
          },
          in_callback);
    }
    std::printf("handled: %s\n", handled.c_str());
  }

  TEST_CASE("may wait although its fiber is being stopped") {
    const child_result r = run_child("child: waits in the shutdown");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("handled: plantedplanted"), r.output);
  }

  TEST_CASE("child: on_unhandled throws" * doctest::skip()) {
    run_until_the_shutdown_throws(
        [](std::exception_ptr) { throw std::logic_error("of the handler"); },
        std::getenv("VIGIL_TEST_IN_CALLBACK") != nullptr);
  }

  TEST_CASE("that throws ends the program with a message that names it") {
    for (const bool in_callback : {false, true}) {
      using environment = std::vector<std::pair<const char*, const char*>>;
      const child_result r =
          run_child("child: on_unhandled throws",
                    in_callback ? environment{{"VIGIL_TEST_IN_CALLBACK", "1"}} : environment{});
      CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
      CHECK_MESSAGE(r.says("options::on_unhandled"), r.output);
      CHECK_MESSAGE(r.says("itself: of the handler"), r.output);
      CHECK_FALSE(r.says("an exception has left fiber"));
    }
  }
}
