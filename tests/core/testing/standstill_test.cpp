// The warning of run_virtual when its clock cannot move, since some fiber can always run.
#include "core/machine/sanitizer.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/co.hpp>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::make_channel;
using vigil::spawn;
using vigil::testing::run_virtual;

namespace {

constexpr int enough = 11'000'000;  // with room: a call and its turn may count as one

// A sanitizer takes most of a minute for so many turns. Others of these tests run there.
constexpr bool is_slow = VIGIL_ASAN != 0 || VIGIL_TSAN != 0;

std::size_t count_of(const std::string& text, const char* what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at)
    ++n;
  return n;
}

void check_is_named(const child_result& child, const char* who) {
  NOTE(child.output);
  CHECK(child.succeeded());
  CHECK(count_of(child.output, "virtual time stands still") == 1);
  CHECK(child.says(who));
  CHECK(child.says("standstill_test.cpp:"));
  CHECK(child.says("VIGIL_SEED=77 "));
}

}  // namespace

TEST_SUITE("virtual time that stands still") {
  TEST_CASE("child: a fiber that yields" * doctest::skip()) {
    run_virtual({.seed = 77}, [] {
      auto poll = spawn({.name = "poll"}, [] {
        for (int i = 0; i < 2 * enough; ++i)
          vigil::this_fiber::yield();
      });
      poll.join();
    });
  }

  TEST_CASE("a fiber that yields for ever is named once, with its place and the seed" *
            doctest::skip(is_slow)) {
    const child_result child = run_child("child: a fiber that yields");
    check_is_named(child, "(poll), started at ");
    CHECK(child.says("with 100 %"));
  }

  TEST_CASE("child: a fiber that is served at once" * doctest::skip()) {
    run_virtual({.seed = 77}, [] {
      auto poll = spawn({.name = "poll"}, [] {
        const auto c = make_channel<int>(1);
        for (int i = 0; i < enough / 2; ++i) {
          c.send(1);
          c.recv();
        }
      });
      poll.join();
    });
  }

  TEST_CASE("a fiber that is served at once for ever is named") {
    check_is_named(run_child("child: a fiber that is served at once"), "(poll), started at ");
  }

  TEST_CASE("child: no budget" * doctest::skip()) {
    vigil::testing::virtual_options o{.seed = 77};
    o.runtime.turn_budget = 0;
    run_virtual(o, [] {
      auto poll = spawn({.name = "poll"}, [] {
        vigil::mutex m;
        for (int i = 0; i < enough; ++i)
          const std::lock_guard lock(m);
      });
      poll.join();
    });
  }

  TEST_CASE("it is named without a budget as well") {
    check_is_named(run_child("child: no budget"), "(poll), started at ");
  }

  TEST_CASE("child: two fibers" * doctest::skip()) {
    run_virtual({.seed = 77}, [] {
      const auto there = make_channel<int>();
      const auto back = make_channel<int>();
      auto one = spawn({.name = "ping"}, [&] {
        for (int i = 0; i < enough / 4; ++i) {
          there.send(1);
          back.recv();
        }
      });
      auto two = spawn({.name = "pong"}, [&] {
        for (int i = 0; i < enough / 4; ++i) {
          there.recv();
          back.send(1);
        }
      });
      one.join();
      two.join();
    });
  }

  TEST_CASE("two fibers that keep each other busy are both named" * doctest::skip(is_slow)) {
    const child_result child = run_child("child: two fibers");
    check_is_named(child, "(ping), started at ");
    CHECK(child.says("(pong), started at "));
  }

  TEST_CASE("child: a task" * doctest::skip()) {
    run_virtual({.seed = 77}, [] {
      auto poll = spawn([](vigil::channel<int> c) -> vigil::task<> {
        for (int i = 0; i < enough / 2; ++i) {
          co_await vigil::co::send(c, 1);
          co_await vigil::co::recv(c);
        }
      }(make_channel<int>(1)));
      poll.join();
    });
  }

  TEST_CASE("a task is named by the place where it was started" * doctest::skip(is_slow)) {
    check_is_named(run_child("child: a task"), "started at ");
  }

  TEST_CASE("child: long turns" * doctest::skip()) {
    run_virtual({.seed = 77}, [] {
      auto poll = spawn({.name = "poll"}, [] {
        const auto used = [] {
          timespec t = {};
          ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
          return t.tv_sec * 1s + t.tv_nsec * 1ns;
        };
        const auto begun = used();
        for (auto turn = begun; turn - begun < 14s; vigil::this_fiber::yield()) {
          while (used() - turn < 1s) {
          }
          turn = used();
        }
      });
      poll.join();
    });
  }

  // It takes so much of the processor: the long form alone.
  TEST_CASE("a few long turns are named after ten seconds of the processor" *
            doctest::skip(std::getenv("VIGIL_LONG") == nullptr)) {
    const child_result child = run_child("child: long turns");
    check_is_named(child, "(poll), started at ");
    CHECK(child.says("in 10 s of processor time"));
  }

  TEST_CASE("child: an instant after another" * doctest::skip()) {
    run_virtual({.seed = 77}, [] {
      for (int i = 0; i < 12; ++i) {
        for (int j = 0; j < 1'000'000; ++j)
          vigil::this_fiber::yield();
        vigil::sleep_for(1ns);
      }
    });
  }

  TEST_CASE("nothing is said of a clock that moves now and then" * doctest::skip(is_slow)) {
    const child_result child = run_child("child: an instant after another");
    CHECK(child.succeeded());
    CHECK_FALSE(child.says("stands still"));
  }
}
