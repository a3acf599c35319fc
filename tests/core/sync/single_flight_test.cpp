#include "core/sync/sync_test.hpp"

#include <vigil/single_flight.hpp>

#include <memory>

using namespace vigil::testing_support;
using vigil::single_flight;

TEST_SUITE("single_flight") {
  // Go: singleflight: TestDo, TestDoErr, TestDoDupSuppress.
  TEST_CASE("simultaneous calls for one key share one call, other keys have their own") {
    for_each_seed(10, [] {
      single_flight<std::string, int> flights;
      int calls = 0;
      crowd all;
      for (int i = 0; i < 10; ++i) {
        all.add([&] {
          CHECK(flights.call("a", [&] {
            ++calls;
            sleep_for(1ms);
            return 7;
          }) == 7);
        });
      }
      all.add([&] { CHECK(flights.call("b", [] { return 8; }) == 8); });
      all.join();
      CHECK(calls == 1);
      CHECK(flights.size() == 0);
      // Results are not cached.
      CHECK(flights.call("a", [] { return 9; }) == 9);
    });
  }

  // Go: singleflight: TestDo, TestDoErr, TestDoDupSuppress.
  TEST_CASE("an exception goes to all waiters, and the next caller calls anew") {
    in_virtual([] {
      single_flight<int, int> flights;
      std::atomic<int> failed{0};
      crowd all;
      for (int i = 0; i < 5; ++i) {
        all.add([&] {
          const auto call = [&] {
            return flights.call(1, []() -> int {
              sleep_for(1ms);
              throw std::runtime_error("no route");
            });
          };
          if (text_of<std::runtime_error>(call) == "no route") ++failed;
        });
      }
      all.join();
      CHECK(failed == 5);
      CHECK(flights.call(1, [] { return 2; }) == 2);
    });
  }

  // Go: singleflight: TestForget, TestForgetMisbehaving.
  TEST_CASE("after forget a new call begins, and the old one serves its waiters") {
    in_virtual([] {
      single_flight<int, int> flights;
      auto first = spawn([&] {
        return flights.call(1, [] {
          sleep_for(10ms);
          return 1;
        });
      });
      settle();
      auto second = spawn([&] { return flights.call(1, [] { return -1; }); });
      settle();
      flights.forget(1);
      flights.forget(2);  // no call of that key is under way
      auto third = spawn([&] {
        return flights.call(1, [] {
          sleep_for(20ms);
          return 3;
        });
      });
      settle();
      CHECK(first.join() == 1);
      CHECK(second.join() == 1);
      CHECK(flights.size() == 1);  // the end of the old call leaves the new one alone
      CHECK(third.join() == 3);
    });
  }

  // Go: singleflight: TestGoexitDo.
  TEST_CASE("if the calling fiber is stopped another one calls, and waiters can be stopped") {
    in_virtual([] {
      single_flight<int, int> flights;
      auto leader = spawn([&] {
        return flights.call(1, [] {
          sleep_for(1h);
          return 1;
        });
      });
      settle();
      auto impatient = spawn([&] { return flights.call(1, [] { return 2; }); });
      settle();
      auto heir = spawn([&] { return flights.call(1, [] { return 3; }); });
      settle();
      impatient.request_stop();
      CHECK_THROWS_AS(impatient.join(), vigil::cancelled);
      leader.request_stop();
      CHECK(heir.join() == 3);
      CHECK_THROWS_AS(leader.join(), vigil::cancelled);
    });
  }

  TEST_CASE("if the context of the calling fiber is done another one calls") {
    in_virtual([] {
      single_flight<int, int> flights;
      auto it = vigil::with_timeout(vigil::background(), 1s);
      auto leader = spawn([&] {
        return flights.call(1, [&] {
          sleep_for(1h, it.ctx);
          return 1;
        });
      });
      settle();
      int calls = 0;
      crowd all;
      for (int i = 0; i < 3; ++i) {
        all.add([&] {
          CHECK(flights.call(1, [&] {
            ++calls;
            sleep_for(1s);
            return 3;
          }) == 3);
        });
      }
      CHECK_THROWS_AS(leader.join(), vigil::cancelled);
      all.join();
      CHECK(calls == 1);
      CHECK(flights.size() == 0);
    });
  }

  TEST_CASE("a context bounds the wait for another's call, not the call") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      single_flight<int, int> flights;
      single_flight<int, void> done;
      const auto it = vigil::with_timeout(vigil::background(), 1s);
      auto leader = spawn([&] {
        return flights.call(1, it.ctx, [] {
          sleep_for(2s);
          return 1;
        });
      });
      settle();
      CHECK_THROWS_AS(flights.call(1, it.ctx, [] { return 2; }), vigil::cancelled);
      CHECK(since(start) == 1s);
      CHECK(flights.call(1, vigil::background(), [] { return 3; }) == 1);
      CHECK(leader.join() == 1);
      CHECK(flights.call(1, it.ctx, [] { return 4; }) == 4);
      int calls = 0;
      done.call(1, it.ctx, [&] { ++calls; });
      CHECK(calls == 1);
      CHECK_THROWS_AS(flights.call(1, vigil::context(), [] { return 5; }), std::invalid_argument);
    });
  }

  TEST_CASE("a wait for one call after another keeps the context that it began with") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      single_flight<int, int> flights;
      auto calls_twice = spawn([&] {
        const auto own = vigil::with_timeout(vigil::background(), 1s);
        const auto gives_up = [&] {
          sleep_for(1h, own.ctx);
          return 1;
        };
        CHECK_THROWS_AS(flights.call(1, gives_up), vigil::cancelled);
        return flights.call(1, [] {
          sleep_for(1h);
          return 2;
        });
      });
      settle();
      auto ctx = vigil::with_timeout(vigil::background(), 3s).ctx;
      auto waits = spawn([&] { return flights.call(1, ctx, [] { return 3; }); });
      settle();
      ctx = vigil::context();
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      CHECK(since(start) == 3s);
      CHECK(calls_twice.join() == 2);
    });
  }

  TEST_CASE("a function that asks for its own key gets an error") {
    in_virtual([] {
      single_flight<int, int> flights;
      CHECK(holds(text_of<std::logic_error>(
                      [&] { flights.call(1, [&] { return flights.call(1, [] { return 1; }); }); }),
                  "itself"));
      CHECK(flights.call(1, [&] { return flights.call(2, [] { return 5; }); }) == 5);
    });
  }

  TEST_CASE("works without a result, and with results that need no default") {
    in_virtual([] {
      single_flight<int, void> done;
      int calls = 0;
      done.call(1, [&] { ++calls; });
      CHECK(calls == 1);
      single_flight<int, std::shared_ptr<const std::string>> large;
      CHECK(*large.call(1, [] { return std::make_shared<const std::string>("x"); }) == "x");
    });
  }

  TEST_CASE("a function that changes the caller's key ends the call for the key it began with") {
    in_virtual([] {
      single_flight<std::string, int> flights;
      const std::string key = "a key that does not fit into the string itself";
      int calls = 0;
      for (int i = 1; i <= 3; ++i) {
        std::string mine = key;
        CHECK(flights.call(mine, [&] {
          mine = "another";
          return ++calls;
        }) == i);
        CHECK(flights.size() == 0);
      }
      // The same with a forget and a call that begins meanwhile.
      std::string mine = key;
      CHECK(flights.call(mine, [&] {
        flights.forget(key);
        mine.clear();
        auto other = vigil::spawn([&] {
          return flights.call(key, [&] {
            vigil::sleep_for(1s);
            return 10;
          });
        });
        vigil::testing::settle();
        other.detach();
        return 5;
      }) == 5);
      CHECK(flights.size() == 1);
      vigil::sleep_for(2s);
      CHECK(flights.size() == 0);
    });
  }

  TEST_CASE("fibers and threads share calls: never two for one key at a time") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      single_flight<int, int> flights;
      std::atomic<int> under_way[2] = {};
      const auto work = [&](int seed) {
        for (int i = 0; i < rounds(1'000); ++i) {
          const int key = (seed + i) % 2;
          const int got = flights.call(key, [&] {
            CHECK(under_way[key].fetch_add(1) == 0);
            if (vigil::this_fiber::id() != 0) vigil::this_fiber::yield();
            under_way[key].fetch_sub(1);
            return key + 10;
          });
          CHECK(got == key + 10);
        }
      };
      crowd all;
      for (int i = 0; i < 4; ++i)
        all.add([&, i] { work(i); });
      std::thread outside([&] { work(7); });
      all.join();
      outside.join();
      CHECK(flights.size() == 0);
    });
  }
}
