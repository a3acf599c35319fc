#include "core/runtime/runtime_test.hpp"
#include "core/sched/call/park.hpp"

#include <vigil/clocks.hpp>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>

using namespace vigil::testing_support;
namespace this_fiber = vigil::this_fiber;

TEST_SUITE("this_fiber") {
  TEST_CASE("each fiber has a number of its own, the one its handle shows") {
    in_runtime({.workers = {1, 2}}, [] {
      std::set<std::uint64_t> seen{this_fiber::id()};
      std::vector<vigil::fiber<std::uint64_t>> fibers;
      for (int i = 0; i < 1000; ++i)
        fibers.push_back(spawn([] { return this_fiber::id(); }));
      for (auto& f : fibers) {
        const auto id = f.id();
        CHECK(f.join() == id);
        CHECK(seen.insert(id).second);
      }
    });
    CHECK(this_fiber::id() == 0);
  }

  TEST_CASE("a name is given at the start or later and cut after 31 bytes") {
    in_virtual([] {
      CHECK(this_fiber::name() == "main");
      auto f = spawn(vigil::fiber_options{.stack_size = 0, .name = "worker bee"}, [] {
        CHECK(this_fiber::name() == "worker bee");
        this_fiber::set_name("queen");
        CHECK(this_fiber::name() == "queen");
        this_fiber::set_name(std::string(100, 'x'));
        CHECK(this_fiber::name() == std::string(31, 'x'));
        this_fiber::set_name("");
        CHECK(this_fiber::name().empty());
      });
      f.join();
      CHECK(spawn([] { return std::string(this_fiber::name()); }).join().empty());
    });
    CHECK(this_fiber::name().empty());
  }

  TEST_CASE("outside a fiber the calls that need one throw an error that says so") {
    CHECK_THROWS_AS(this_fiber::yield(), vigil::wrong_place);
    CHECK_THROWS_AS(this_fiber::set_name("x"), vigil::wrong_place);
    CHECK_THROWS_AS(static_cast<void>(this_fiber::pin()), vigil::wrong_place);
    CHECK_THROWS_AS(static_cast<void>(this_fiber::shield()), vigil::wrong_place);
    CHECK_THROWS_AS(static_cast<void>(this_fiber::no_park()), vigil::wrong_place);
    CHECK_THROWS_AS(vigil::stats(), vigil::wrong_place);
    CHECK_THROWS_AS(vigil::runtime::current(), vigil::wrong_place);
    CHECK_THROWS_AS(vigil::testing::settle(), vigil::wrong_place);
    CHECK_FALSE(this_fiber::stop_requested());
  }

  TEST_CASE("yield lets every other runnable fiber go first") {
    in_runtime({.workers = {1}}, [] {
      std::vector<int> order;
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 5; ++i) {
        fibers.push_back(spawn([&order, i] {
          for (int round = 0; round < 3; ++round) {
            order.push_back(i);
            this_fiber::yield();
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
      CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
    });
  }

  TEST_CASE("yield alone returns without a switch") {
    in_virtual([] {
      this_fiber::yield();
      const auto before = vigil::stats().switches;
      for (int i = 0; i < 100; ++i)
        this_fiber::yield();
      CHECK(vigil::stats().switches == before);
    });
  }

  TEST_CASE("a fiber that yields goes on although the main fiber keeps its worker") {
    in_runtime({.workers = {2}}, [] {
      std::atomic<bool> done{false};
      std::atomic<int> turns{0};
      auto f = spawn([&] {
        while (!done.load()) {
          turns.fetch_add(1);
          this_fiber::yield();
        }
      });
      for (int round = 0; round < rounds(500); ++round) {
        sleep_for(20us);  // both workers get their turn
        for (const int before = turns.load(); turns.load() == before;) {
        }
      }
      done.store(true);
      f.join();
    });
  }

  TEST_CASE("a pinned fiber stays on its worker, nested pins included") {
    in_runtime({.workers = {2, 4}}, [] {
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 8; ++i) {
        fibers.push_back(spawn([] {
          for (int round = 0; round < rounds(200); ++round) {
            const this_fiber::pin outer;
            const auto here = std::this_thread::get_id();
            {
              const this_fiber::pin inner;
              this_fiber::yield();
              REQUIRE(std::this_thread::get_id() == here);
            }
            sleep_for(1us);
            REQUIRE(std::this_thread::get_id() == here);
            spawn([] {}).join();
            REQUIRE(std::this_thread::get_id() == here);
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
    });
  }

  TEST_CASE("unpinned fibers use all the workers") {
    in_runtime({.workers = {2}}, [] {
      std::mutex lock;
      std::set<std::thread::id> threads;
      std::atomic<int> arrived{0};
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 2; ++i) {
        fibers.push_back(spawn([&] {
          {
            const std::lock_guard guard(lock);
            threads.insert(std::this_thread::get_id());
          }
          arrived.fetch_add(1);
          while (arrived.load() < 2) {
          }  // each must be on a thread of its own
        }));
      }
      for (auto& f : fibers)
        f.join();
      CHECK(threads.size() == 2);
    });
  }

  TEST_CASE("under a shield waits go on and throw stopped again after it") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      bool waited = false;
      bool thrown = false;
      auto f = spawn([&] {
        {
          const this_fiber::shield outer;
          {
            const this_fiber::shield inner;
            sleep_for(2s);
          }
          sleep_for(2s);
          CHECK(this_fiber::stop_requested());
          this_fiber::yield();
          waited = true;
        }
        try {
          sleep_for(1h);
        } catch (const vigil::stopped&) {
          thrown = true;
        }
      });
      sleep_for(1s);
      f.request_stop();
      f.join();
      CHECK(since(start) == 4s);
      CHECK(waited);
      CHECK(thrown);
    });
  }

  TEST_CASE("stopped is not a std::exception") {
    in_virtual([] {
      bool passed = true;
      auto f = spawn([&] {
        try {
          sleep_for(1h);
        } catch (const std::exception&) {
          passed = false;
        }
      });
      vigil::testing::settle();
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(passed);
    });
  }

  TEST_CASE("no_park permits calls that do not park") {
    in_virtual([] {
      const this_fiber::no_park outer;
      const this_fiber::no_park inner;
      vigil::go([] {});
      const auto t = vigil::after_func(1s, [] {});
      CHECK(t.remaining() == 1s);
      sleep_for(0s);
      vigil::sleep_until(vigil::clock::now());
      vigil::boot::sleep_for(0s);
      vigil::wall::sleep_until(std::chrono::system_clock::time_point());
    });
  }

  TEST_CASE("child: sleeps under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      this_fiber::set_name("clumsy");
      const this_fiber::no_park guard;
      sleep_for(1s);
    });
  }

  TEST_CASE("child: yields under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      this_fiber::set_name("clumsy");
      const this_fiber::no_park guard;
      this_fiber::yield();
    });
  }

  TEST_CASE("child: joins under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      this_fiber::set_name("clumsy");
      auto f = spawn([] { sleep_for(1s); });
      const this_fiber::no_park guard;
      f.join();
    });
  }

  TEST_CASE("a wait under no_park ends the program by name") {
    for (const char* const what : {"sleeps", "yields", "joins"}) {
      const auto name = std::string("child: ") + what + " under no_park";
      const child_result r = run_child(name.c_str());
      CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
      CHECK(r.says("clumsy"));
      CHECK(r.says("this_fiber::no_park"));
    }
  }
}

namespace {

// Makes a guard and ends it in the given place.
template <class Guard>
void ends_in_the_wrong_place(const std::string& where) {
  auto left = std::make_unique<std::optional<Guard>>();
  if (where == "on a thread") {
    left->emplace();
    std::thread([&] { left->reset(); }).join();
  } else if (where == "on another fiber") {
    left->emplace();
    spawn([&] { left->reset(); }).join();
  } else if (where == "after its fiber") {
    // The next fiber has the same stack, and so the same control block.
    spawn([&] { left->emplace(); }).join();
    spawn([&] { left->reset(); }).join();
  } else if (where == "in a later callback") {
    vigil::after_func(1ms, [&] { left->emplace(); });
    vigil::after_func(2ms, [&] { left->reset(); });
    sleep_for(3ms);
  } else if (where == "in a forked child") {
    left->emplace();
    const pid_t child = ::fork();
    if (child == 0) {
      left->reset();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    left->reset();
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) std::abort();
  }
}

// A guard that is never ended.
template <class Guard>
void leave_behind() {
  alignas(Guard) static std::byte room[sizeof(Guard)];
  ::new (static_cast<void*>(room)) Guard;
}

}  // namespace

TEST_SUITE("a guard of this_fiber") {
  TEST_CASE("child: a guard ends in the wrong place" * doctest::skip()) {
    const std::string guard = std::getenv("VIGIL_TEST_GUARD");
    const std::string where = std::getenv("VIGIL_TEST_WHERE");
    vigil::testing::run_virtual([&] {
      this_fiber::set_name("clumsy");
      if (guard == "pin") ends_in_the_wrong_place<this_fiber::pin>(where);
      if (guard == "shield") ends_in_the_wrong_place<this_fiber::shield>(where);
      if (guard == "no_park") ends_in_the_wrong_place<this_fiber::no_park>(where);
    });
  }

  TEST_CASE("that ends in another place than it was made ends the program by name") {
    for (const char* const guard : {"pin", "shield", "no_park"}) {
      for (const char* const where : {"on a thread",
                                      "on another fiber",
                                      "after its fiber",
                                      "in a later callback",
                                      "in a forked child"}) {
        // A fiber that holds a no_park cannot wait for another fiber.
        const bool waits = std::string(where) == "on another fiber";
        if (std::string(guard) == "no_park" && waits) continue;
        const child_result r =
            run_child("child: a guard ends in the wrong place",
                      {{"VIGIL_TEST_GUARD", guard}, {"VIGIL_TEST_WHERE", where}});
        CHECK_MESSAGE(r.died_by(SIGABRT), guard, " ", where, "\n", r.output);
        const std::string name = std::string("this_fiber::") + guard;
        CHECK_MESSAGE(r.says(name.c_str()), where, "\n", r.output);
      }
    }
  }

  TEST_CASE("that a callback leaves behind ends with the callback") {
    in_virtual([] {
      std::uint64_t runner = 0;
      vigil::after_func(1ms, [&] {
        runner = this_fiber::id();
        leave_behind<this_fiber::pin>();
        leave_behind<this_fiber::shield>();
        leave_behind<this_fiber::no_park>();
      });
      sleep_for(2ms);
      bool next = false;
      vigil::after_func(1ms, [&] {
        CHECK(this_fiber::id() == runner);
        const auto& self = *vigil::detail::current_fiber();
        CHECK(self.pinned == nullptr);
        CHECK(self.guards.pins == 0);
        CHECK(self.guards.shields == 0);
        CHECK(self.guards.no_parks == 0);
        next = true;
      });
      sleep_for(2ms);
      CHECK(next);
    });
  }
}
