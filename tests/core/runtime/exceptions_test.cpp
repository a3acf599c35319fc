// Exceptions in flight while the fiber is parked and moves to other threads.
#include "core/runtime/runtime_test.hpp"

#include <exception>

using namespace vigil::testing_support;

namespace {

// Gives other workers the chance to take the fiber.
void wander() {
  vigil::this_fiber::yield();
  vigil::sleep_for(20us);
  vigil::this_fiber::yield();
}

struct parks_when_destroyed {
  int* in_flight;

  ~parks_when_destroyed() {
    const int before = std::uncaught_exceptions();
    const vigil::this_fiber::shield shield;
    wander();
    *in_flight = std::uncaught_exceptions() == before ? before : -1;
  }
};

}  // namespace

TEST_SUITE("exceptions") {
  TEST_CASE("a caught exception is still the current one after a wait in its catch block") {
    in_runtime({}, [] {
      std::vector<vigil::fiber<>> all;
      for (int i = 0; i < 64; ++i) {
        all.push_back(vigil::spawn([i] {
          for (int round = 0; round < rounds(100); ++round) {
            const std::string mine = std::to_string(i) + "/" + std::to_string(round);
            try {
              throw std::runtime_error(mine);
            } catch (const std::exception& e) {
              wander();
              REQUIRE(e.what() == mine);
              REQUIRE(std::uncaught_exceptions() == 0);
              try {
                wander();
                throw;  // the outer exception, wherever the fiber is by now
              } catch (const std::runtime_error& again) {
                wander();
                REQUIRE(again.what() == mine);
              }
            }
            REQUIRE(std::current_exception() == nullptr);
          }
        }));
      }
      for (auto& f : all)
        f.join();
    });
  }

  TEST_CASE("nested catch blocks keep their own exceptions across waits") {
    in_runtime({}, [] {
      std::vector<vigil::fiber<>> all;
      for (int i = 0; i < 32; ++i) {
        all.push_back(vigil::spawn([i] {
          for (int round = 0; round < rounds(100); ++round) {
            try {
              throw i;
            } catch (int outer) {
              try {
                wander();
                throw std::string("inner");
              } catch (const std::string& inner) {
                wander();
                REQUIRE(inner == "inner");
              }
              wander();
              REQUIRE(outer == i);
              REQUIRE(std::current_exception() != nullptr);
            }
          }
        }));
      }
      for (auto& f : all)
        f.join();
    });
  }

  TEST_CASE("a destructor may wait while an exception passes it") {
    in_runtime({}, [] {
      std::vector<vigil::fiber<>> all;
      for (int i = 0; i < 64; ++i) {
        all.push_back(vigil::spawn([i] {
          for (int round = 0; round < rounds(50); ++round) {
            int in_flight = 0;
            bool caught = false;
            try {
              const parks_when_destroyed guard{&in_flight};
              if (i % 2 == 0) throw i;
            } catch (int value) {
              caught = value == i;
            }
            REQUIRE(caught == (i % 2 == 0));
            REQUIRE(in_flight == (i % 2 == 0 ? 1 : 0));
            REQUIRE(std::uncaught_exceptions() == 0);
          }
        }));
      }
      for (auto& f : all)
        f.join();
    });
  }

  TEST_CASE("an exception thrown on one thread is joined on another") {
    in_runtime({}, [] {
      for (int round = 0; round < rounds(500); ++round) {
        auto f = vigil::spawn([round]() -> int {
          wander();
          throw std::runtime_error(std::to_string(round));
        });
        wander();
        CHECK_THROWS_WITH_AS(
            static_cast<void>(f.join()), std::to_string(round).c_str(), std::runtime_error);
      }
    });
  }

  TEST_CASE("errno's value travels with the fiber") {
    in_runtime({}, [] {
      std::vector<vigil::fiber<>> all;
      for (int i = 1; i <= 64; ++i) {
        all.push_back(vigil::spawn([i] {
          // Set and read through functions that are not inlined: the address of errno
          // must not be kept across a wait.
          const auto set = [](int value) __attribute__((noinline)) {
            errno = value;
          };
          const auto get = []() __attribute__((noinline)) {
            return errno;
          };
          for (int round = 0; round < rounds(50); ++round) {
            set(i);
            vigil::this_fiber::yield();
            REQUIRE(get() == i);
          }
        }));
      }
      for (auto& f : all)
        f.join();
    });
  }
}
