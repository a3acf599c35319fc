// blocking(): functions on the side pool.
#include "core/blocking/blocking_helpers.hpp"
#include "support/at_rest.hpp"
#include "support/child.hpp"
#include "support/gate.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

TEST_SUITE("blocking") {
  // Node, libuv: the result is delivered on the loop's thread, once.
  TEST_CASE("runs the function on another thread and returns its result to the fiber") {
    in_runtime({}, [] {
      const auto here = std::this_thread::get_id();
      const auto there = vigil::blocking([] { return std::this_thread::get_id(); });
      CHECK(there != std::thread::id());
      CHECK(there != here);
      CHECK(vigil::blocking([] { return std::make_unique<int>(7); }) != nullptr);
      bool ran = false;
      vigil::blocking([&ran] { ran = true; });
      CHECK(ran);
    });
  }

  // Node, libuv: the result is delivered on the loop's thread, once.
  TEST_CASE("rethrows the function's exception on the fiber") {
    in_virtual([] {
      CHECK_THROWS_WITH_AS(vigil::blocking([]() -> int { throw std::runtime_error("planted"); }),
                           "planted",
                           std::runtime_error);
      CHECK_THROWS_AS(vigil::blocking([] { throw 5; }), int);
      CHECK_THROWS_AS(
          static_cast<void>(vigil::blocking_for(1h, []() -> int { throw std::logic_error("x"); })),
          std::logic_error);
    });
  }

  TEST_CASE("the other fibers of the worker go on meanwhile") {
    in_runtime({.workers = {1}}, [] {
      gate g;
      int beats = 0;
      auto beat = vigil::spawn([&] {
        g.wait_until_entered();
        for (int i = 0; i < 10; ++i) {
          vigil::sleep_for(1ms);
          ++beats;
        }
        g.open();
      });
      vigil::blocking([&g] { g.wait(); });
      CHECK(beats == 10);
      beat.join();
    });
  }

  TEST_CASE("functions are moved in, and destroyed on their thread as soon as they have returned") {
    in_virtual([] {
      std::atomic<std::thread::id> died{};
      std::thread::id ran{};
      vigil::blocking([&ran, d = dies_on(died), p = std::make_unique<int>(1)] {
        ran = std::this_thread::get_id();
      });
      CHECK(died.load() == ran);
      CHECK(ran != std::this_thread::get_id());
    });
  }

  TEST_CASE("on a plain thread the function simply runs there") {
    const auto here = std::this_thread::get_id();
    CHECK(vigil::blocking([] { return std::this_thread::get_id(); }) == here);
    CHECK(vigil::blocking_for(1ms, [] { return 3; }) == 3);
    CHECK(vigil::blocking_for(1ms, [] {}));
    CHECK_FALSE(vigil::blocking_for(0ms, [] { FAIL("runs"); }));
    // The same inside a function of the pool.
    in_virtual([] {
      CHECK(vigil::blocking([] {
        const auto there = std::this_thread::get_id();
        return vigil::blocking([there] { return std::this_thread::get_id() == there; });
      }));
    });
  }

  // Node, libuv: null work refused.
  TEST_CASE("an empty function is refused at the call") {
    in_virtual([] {
      void (*none)() = nullptr;
      CHECK_THROWS_AS(vigil::blocking(none), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(vigil::blocking_for(1s, none)), std::invalid_argument);
    });
  }

  TEST_CASE("is named in the dump with its reason, and is not a deadlock") {
    in_runtime({.workers = {1, 2}}, [] {
      gate g;
      auto caller = vigil::spawn([&g] {
        vigil::this_fiber::set_name("caller");
        vigil::blocking([&g] { g.wait(); });
      });
      g.wait_until_entered();
      const auto dump_says = [](const char* what) {
        char* text = nullptr;
        std::size_t size = 0;
        std::FILE* const memory = open_memstream(&text, &size);
        vigil::debug::dump(memory);
        std::fclose(memory);
        const std::string dump(text, size);
        std::free(text);
        return dump.find(what) != std::string::npos;
      };
      // Another worker may have the caller and not have run it yet.
      while (!dump_says("blocking: a function on a side pool"))
        vigil::sleep_for(100us);
      // Only the function can end this join: all workers sleep.
      std::thread later([&g, &all = *vigil::detail::current_scheduler()] {
        wait_until_at_rest(all);
        g.open();
      });
      caller.join();
      later.join();
    });
  }

  TEST_CASE("under no_park it ends the program as every wait does") {
    const child_result child = run_child("child: blocking under no_park");
    CHECK(child.died_by(SIGABRT));
    CHECK(child.says("is about to wait under this_fiber::no_park"));
  }

  TEST_CASE("child: blocking under no_park" * doctest::skip()) {
    vigil::run([] {
      const vigil::this_fiber::no_park guard;
      vigil::blocking([] {});
    });
  }
}
