// blocking(): functions on the side pool, and how their callers' waits end.
#include "sched/scheduler.hpp"
#include "support/child.hpp"
#include "support/gate.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

// Notes which thread destroys it, once.
struct dies_on {
  explicit dies_on(std::atomic<std::thread::id>& where) : on(&where) {}

  dies_on(dies_on&& other) noexcept : on(std::exchange(other.on, nullptr)) {}

  ~dies_on() {
    if (on != nullptr) *on = std::this_thread::get_id();
  }

  std::atomic<std::thread::id>* on;
};

// From outside a fiber: until every worker sleeps, and whoever is to be taken for
// idle is.
void wait_until_asleep(vigil::internal::scheduler& sched) {
  while (sched.idle().asleep() < sched.workers().size())
    std::this_thread::yield();
}

vigil::testing::virtual_options with_threads(std::size_t n, std::uint64_t seed = 1) {
  vigil::testing::virtual_options how;
  how.seed = seed;
  how.runtime.blocking_threads = n;
  return how;
}

}  // namespace

TEST_SUITE("blocking") {
  TEST_CASE("runs the function on another thread and returns its result to the fiber") {
    in_runtime({}, [] {
      const auto here = std::this_thread::get_id();
      const auto there = vigil::blocking([] { return std::this_thread::get_id(); });
      CHECK(there != std::thread::id());
      CHECK(there != here);
      CHECK(std::this_thread::get_id() == here);  // the main fiber is pinned
      CHECK(vigil::blocking([] { return std::make_unique<int>(7); }) != nullptr);
      bool ran = false;
      vigil::blocking([&ran] { ran = true; });
      CHECK(ran);
    });
  }

  TEST_CASE("rethrows on the fiber what the function threw") {
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

  TEST_CASE("functions move in, and die on their thread as soon as they have returned") {
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
    // Inside a function of the pool too.
    in_virtual([] {
      CHECK(vigil::blocking([] {
        const auto there = std::this_thread::get_id();
        return vigil::blocking([there] { return std::this_thread::get_id() == there; });
      }));
    });
  }

  TEST_CASE("an empty function is refused at the call") {
    in_virtual([] {
      void (*none)() = nullptr;
      CHECK_THROWS_AS(vigil::blocking(none), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(vigil::blocking_for(1s, none)), std::invalid_argument);
    });
  }

  TEST_CASE("is named in the dump with its reason, and is no deadlock") {
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
      // Another worker may have the caller, and not be there yet.
      while (!dump_says("blocking: a function on a side pool"))
        vigil::sleep_for(100us);
      // Nothing but the function will ever end this join: all workers sleep.
      std::thread later([&g, &all = *vigil::internal::current_scheduler()] {
        wait_until_asleep(all);
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

  TEST_CASE("takes a queued function out: it never runs and dies with its caller's call") {
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

  TEST_CASE("lets the caller go while the function runs: its result is dropped on its thread") {
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
      // On a busy machine its thread may come too late: then it never began.
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

  TEST_CASE("what an abandoned function throws is dropped") {
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

  TEST_CASE("of function and deadline exactly one wins, and no result is lost") {
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
                    // Real time, as the deadline: no order of the two is hoped for.
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
      // The run has waited for the abandoned ones.
      CHECK(made.load() == died.load());
      CHECK(made.load() >= got);
    }
  }
}

TEST_SUITE("blocking and the end") {
  TEST_CASE("a stop lets the caller go at once and leaves the function to its thread") {
    in_runtime({}, [] {
      auto g = std::make_shared<gate>();
      auto caller = vigil::spawn([g] { vigil::blocking([g] { g->wait(); }); });
      g->wait_until_entered();
      caller.request_stop();
      CHECK_THROWS_AS(caller.join(), vigil::cancelled);
      CHECK(vigil::stats_of_blocking().running == 1);
      g->open();
    });
  }

  TEST_CASE("a stop takes a queued function out") {
    real_options how;
    how.settings.blocking_threads = 1;
    in_runtime(how, [] {
      auto g = std::make_shared<gate>();
      bool ran = false;
      auto first = vigil::spawn([g] { vigil::blocking([g] { g->wait(); }); });
      g->wait_until_entered();
      auto second = vigil::spawn([&ran] { vigil::blocking([&ran] { ran = true; }); });
      while (vigil::stats_of_blocking().queued == 0)
        vigil::this_fiber::yield();
      second.request_stop();
      CHECK_THROWS_AS(second.join(), vigil::cancelled);
      CHECK(vigil::stats_of_blocking().queued == 0);
      g->open();
      first.join();
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("a context takes a queued function out, and lets the caller of one that runs go") {
    real_options how;
    how.settings.blocking_threads = 1;
    in_runtime(how, [] {
      auto g = std::make_shared<gate>();
      std::atomic<bool> ran{false};
      auto it = vigil::with_cancel(vigil::background());
      auto first = vigil::spawn([g, &it] { vigil::blocking(it.ctx, [g] { g->wait(); }); });
      g->wait_until_entered();
      auto second =
          vigil::spawn([&ran, &it] { return vigil::blocking(it.ctx, [&ran] { ran = true; }); });
      while (vigil::stats_of_blocking().queued == 0)
        vigil::this_fiber::yield();
      it.cancel();
      CHECK_THROWS_AS(first.join(), vigil::cancelled);
      CHECK_THROWS_AS(second.join(), vigil::cancelled);
      CHECK(vigil::stats_of_blocking().queued == 0);
      CHECK_THROWS_AS(vigil::blocking(it.ctx, [&ran] { ran = true; }), vigil::cancelled);
      g->open();
      CHECK(vigil::blocking([] { return 7; }) == 7);  // the thread has come back
      CHECK_FALSE(ran.load());
    });
  }

  TEST_CASE("a context that is done already: the function is not even queued") {
    auto it = vigil::with_cancel(vigil::background());
    it.cancel();
    CHECK_THROWS_AS(vigil::blocking(it.ctx, [] { FAIL("runs"); }), vigil::cancelled);
    in_virtual([] {
      auto here = vigil::with_cancel(vigil::background());
      here.cancel();
      CHECK_THROWS_AS(vigil::blocking(here.ctx, [] { FAIL("runs"); }), vigil::cancelled);
      vigil::blocking_pool pool({.threads = 1});
      CHECK_THROWS_AS(vigil::blocking(pool, here.ctx, [] { return 1; }), vigil::cancelled);
      CHECK(pool.stats().threads == 0);
      CHECK(vigil::stats_of_blocking().threads == 0);
    });
  }

  TEST_CASE("a caller that must stop does not begin, under a shield it does and waits") {
    in_virtual([] {
      bool refused = false;
      int result = 0;
      auto f = vigil::spawn([&] {
        try {
          vigil::sleep_for(1h);
        } catch (const vigil::stopped&) {
          try {
            vigil::blocking([] { FAIL("runs"); });
          } catch (const vigil::stopped&) {
            refused = true;
          }
          const vigil::this_fiber::shield shield;
          result = vigil::blocking([] { return 4; });
          throw;
        }
      });
      vigil::this_fiber::yield();
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(refused);
      CHECK(result == 4);
    });
  }

  TEST_CASE("run returns only after a function that was left behind") {
    for (const bool on_virtual : {false, true}) {
      std::atomic<bool> returned{false};
      auto g = std::make_shared<gate>();
      const auto body = [&] {
        auto& sched = *vigil::internal::current_scheduler();
        vigil::go([g, &returned, &sched] {
          vigil::blocking([g, &returned, &sched] {
            g->wait();
            // The main fiber waits for nothing else.
            while (sched.phase() < vigil::internal::run_phase::stopping || sched.alive() > 1)
              std::this_thread::yield();
            returned = true;
          });
        });
        while (!g->entered())
          vigil::this_fiber::yield();
        g->open();
      };
      if (on_virtual) {
        vigil::testing::run_virtual(body);
      } else {
        vigil::run(body);
      }
      CHECK(returned.load());
    }
  }

  TEST_CASE("child: never returns" * doctest::skip()) {
    vigil::options o;
    o.stop_limit = 50ms;
    vigil::run(o, [] {
      auto g = std::make_shared<gate>();
      vigil::go([g] {
        vigil::this_fiber::set_name("asks the printer");
        vigil::blocking([g] { g->wait(); });
      });
      g->wait_until_entered();
    });
  }

  TEST_CASE("child: never returns on virtual time" * doctest::skip()) {
    vigil::testing::virtual_options how;
    how.runtime.stop_limit = 50ms;
    vigil::testing::run_virtual(how, [] {
      auto g = std::make_shared<gate>();
      vigil::go([g] {
        vigil::this_fiber::set_name("asks the printer");
        vigil::blocking([g] { g->wait(); });
      });
      while (!g->entered())
        vigil::this_fiber::yield();
    });
  }

  TEST_CASE("a function that does not return within the stop limit is named, then abort") {
    for (const char* name : {"child: never returns", "child: never returns on virtual time"}) {
      const child_result child = run_child(name);
      CHECK(child.died_by(SIGABRT));
      CHECK(child.says("a function on a side pool, called "));
      CHECK(child.says("(asks the printer) at "));
      CHECK(child.says("blocking_test.cpp:"));
    }
  }
}

TEST_SUITE("blocking on virtual time") {
  TEST_CASE("time stands still while a function runs") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      bool woke = false;
      auto sleeper = vigil::spawn([&woke] {
        vigil::sleep_for(1ns);
        woke = true;
      });
      // Until nobody has anything else to do, and time could go on.
      vigil::blocking([&all = *vigil::internal::current_scheduler()] { wait_until_asleep(all); });
      CHECK(vigil::clock::now() == start);
      CHECK_FALSE(woke);
      sleeper.join();
      CHECK(since(start) == 1ns);
    });
  }

  TEST_CASE("a deadline does not come while its function runs") {
    in_virtual([] {
      CHECK(vigil::blocking_for(1ns, [&all = *vigil::internal::current_scheduler()] {
              wait_until_asleep(all);
              return 1;
            }) == 1);
    });
  }

  TEST_CASE("results are taken in together, when nothing else can run, in an order of the seed") {
    const auto order = [](std::uint64_t seed) {
      std::string text;
      in_virtual(with_threads(4, seed), [&] {
        std::vector<vigil::fiber<>> callers;
        bool others_ran = false;
        std::atomic<int> turn{3};
        for (int i = 0; i < 4; ++i) {
          callers.push_back(vigil::spawn([&, i] {
            // The last of them is the first to return, and that changes nothing.
            vigil::blocking([i, &turn] {
              while (turn.load() != i)
                std::this_thread::yield();
              turn = i - 1;
            });
            CHECK(others_ran);
            text += static_cast<char>('a' + i);
          }));
        }
        auto busy = vigil::spawn([&] {
          for (int i = 0; i < 1000; ++i)
            vigil::this_fiber::yield();
          others_ran = true;
        });
        for (auto& c : callers)
          c.join();
        busy.join();
      });
      return text;
    };
    bool differ = false;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const std::string first = order(seed);
      CHECK(first.size() == 4);
      CHECK(order(seed) == first);
      differ = differ || first != order(1);
    }
    CHECK(differ);
  }

  TEST_CASE("settle waits for functions too") {
    in_virtual([] {
      bool done = false;
      vigil::go([&done] {
        vigil::blocking([&all = *vigil::internal::current_scheduler()] { wait_until_asleep(all); });
        done = true;
      });
      vigil::testing::settle();
      CHECK(done);
    });
  }
}
