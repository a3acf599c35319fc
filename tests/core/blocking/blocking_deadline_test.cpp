// blocking() with a deadline: the function or the deadline wins.
#include "core/blocking/blocking_helpers.hpp"
#include "support/gate.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

TEST_SUITE("blocking with a deadline") {
  TEST_CASE("is the result in an optional, or true, if the function is in time") {
    in_runtime({}, [] {
      CHECK(vigil::blocking_for(1h, [] { return 5; }) == 5);
      CHECK(vigil::blocking_for(1h, [] {}));
      CHECK(vigil::blocking_until(vigil::clock::now() + 1h, [] { return std::string("x"); }) ==
            "x");
      CHECK(vigil::blocking_for(std::chrono::nanoseconds::max(), [] { return 1; }) == 1);
      const auto inner = vigil::blocking_for(1h, [] { return std::optional<int>(); });
      CHECK(inner.has_value());
      CHECK_FALSE(inner->has_value());
    });
  }

  TEST_CASE("zero, negative or passed: the function is not even queued") {
    in_virtual([] {
      bool ran = false;
      CHECK_FALSE(vigil::blocking_for(0s, [&] { ran = true; }));
      CHECK_FALSE(vigil::blocking_for(-1s, [&] { ran = true; }));
      CHECK_FALSE(vigil::blocking_for(std::chrono::nanoseconds::min(), [&] { ran = true; }));
      CHECK_FALSE(vigil::blocking_until(vigil::clock::now(), [&] { ran = true; }));
      CHECK_FALSE(ran);
      CHECK(vigil::stats_of_blocking().threads == 0);
    });
  }

  // Node, libuv: queued work can be cancelled.
  TEST_CASE("removes a queued function: it never runs and is destroyed as its caller's call ends") {
    real_options how;
    how.settings.blocking_threads = 1;
    in_runtime(how, [] {
      gate g;
      auto first = vigil::spawn([&g] { vigil::blocking([&g] { g.wait(); }); });
      g.wait_until_entered();
      bool ran = false;
      auto token = std::make_shared<int>(0);
      const auto start = vigil::clock::now();
      CHECK_FALSE(vigil::blocking_for(2ms, [&ran, token] { ran = true; }));
      CHECK(vigil::clock::now() - start >= 2ms);
      CHECK(token.use_count() == 1);
      CHECK(vigil::stats_of_blocking().queued == 0);
      g.open();
      first.join();
      CHECK_FALSE(ran);
      vigil::blocking([] {});  // the pool goes on
      CHECK_FALSE(ran);
    });
  }

  // Node, libuv: running work cannot be cancelled (threadpool_cancel_when_busy).
  TEST_CASE("ends the caller's wait while the function runs: its result is dropped on its thread") {
    in_runtime({}, [] {
      auto g = std::make_shared<gate>();
      std::atomic<std::thread::id> captures{};
      auto result = std::make_shared<std::atomic<std::thread::id>>();
      struct outcome {
        std::shared_ptr<std::atomic<std::thread::id>> where;
        outcome(std::shared_ptr<std::atomic<std::thread::id>> w) : where(std::move(w)) {}
        outcome(outcome&& other) noexcept = default;
        outcome& operator=(outcome&&) noexcept = default;
        ~outcome() {
          if (where != nullptr) *where = std::this_thread::get_id();
        }
      };
      const auto start = vigil::clock::now();
      // On a busy machine the thread may come too late: then the function never began.
      while (vigil::stats_of_blocking().running == 0) {
        captures = std::thread::id();
        CHECK_FALSE(vigil::blocking_for(3ms, [g, d = dies_on(captures), result] {
                      g->wait();
                      return outcome(result);
                    }).has_value());
      }
      CHECK(vigil::clock::now() - start >= 3ms);
      CHECK(vigil::stats_of_blocking().running == 1);
      CHECK(captures.load() == std::thread::id());
      g->open();
      while (result->load() == std::thread::id())
        vigil::this_fiber::yield();
      CHECK(captures.load() == result->load());
      CHECK(result->load() != std::this_thread::get_id());
    });
  }

  TEST_CASE("an exception of an abandoned function is dropped") {
    in_runtime({}, [] {
      auto g = std::make_shared<gate>();
      // As above.
      while (vigil::stats_of_blocking().running == 0) {
        CHECK_FALSE(vigil::blocking_for(1ms, [g] {
          g->wait();
          throw std::runtime_error("nobody hears it");
        }));
      }
      g->open();
      vigil::blocking([] {});
    });
  }

  // Node, libuv: running work cannot be cancelled (threadpool_cancel_when_busy).
  TEST_CASE("exactly one of function and deadline wins, and no result is lost") {
    for (const unsigned workers : {1u, 4u}) {
      std::atomic<int> made{0};
      std::atomic<int> died{0};

      struct piece {
        std::atomic<int>* died;

        piece(std::atomic<int>& m, std::atomic<int>& d) : died(&d) { ++m; }

        piece(piece&& other) noexcept : died(std::exchange(other.died, nullptr)) {}

        piece& operator=(piece&&) = delete;

        ~piece() {
          if (died != nullptr) ++*died;
        }
      };

      int got = 0;
      in_runtime({.workers = {workers}}, [&] {
        std::vector<vigil::fiber<int>> callers;
        for (int i = 0; i < 8; ++i) {
          callers.push_back(vigil::spawn([&, i] {
            int mine = 0;
            seeded dice(static_cast<std::uint64_t>(i) + 1);
            for (int n = 0; n < rounds(200); ++n) {
              const auto limit = std::chrono::microseconds(dice.below(120));
              const auto work = std::chrono::microseconds(dice.below(60));
              if (vigil::blocking_for(limit, [&made, &died, work] {
                    // Real time, as the deadline is: the case relies on no order of the
                    // two.
                    const auto until = std::chrono::steady_clock::now() + work;
                    while (std::chrono::steady_clock::now() < until) {
                    }
                    return piece(made, died);
                  }).has_value()) {
                ++mine;
              }
            }
            return mine;
          }));
        }
        for (auto& c : callers)
          got += c.join();
      });
      // The run has waited for the abandoned functions.
      CHECK(made.load() == died.load());
      CHECK(made.load() >= got);
    }
  }
}
