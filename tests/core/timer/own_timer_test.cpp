// Callbacks that take their own timer.
#include "core/timer/timer_test.hpp"

#include <functional>
#include <stdexcept>
#include <utility>

namespace {

using namespace vigil::testing_support;

// Calls body(make) for each way to make a timer on the monotonic clock.
template <class Body>
void for_each_way(Body body) {
  for_each_seed(5, [&] { body([](auto f) { return after_func(1ms, std::move(f)); }); });
  for_each_seed(5, [&] { body([](auto f) { return vigil::every(1ms, std::move(f)); }); });
  for_each_seed(
      5, [&] { body([](auto f) { return vigil::every(1ms, std::move(f), vigil::from_end); }); });
  for_each_seed(5,
                [&] { body([](auto f) { return vigil::post(std::move(f), vigil::stoppable); }); });
  for_each_seed(5,
                [&] { body([](auto f) { return vigil::defer(std::move(f), vigil::stoppable); }); });
}

}  // namespace

TEST_SUITE("a callback that takes its timer") {
  TEST_CASE("may reset and stop it, though no other handle is left") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      int runs = 0;
      auto shared = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = shared;
      after_func(1s, [&runs, p = std::move(shared)](timer& self) {
        if (++runs < 3) {
          CHECK_FALSE(self.reset(1s));
          CHECK(self.remaining() == 1s);
        }
      });
      sleep_for(10s);
      CHECK(runs == 3);
      CHECK(watch.expired());
      CHECK(since(start) == 10s);
      int beats = 0;
      vigil::every(1s, [&beats](timer& self) {
        if (++beats == 3) CHECK(self.stop());
      });
      sleep_for(10s);
      CHECK(beats == 3);
    });
  }

  TEST_CASE("gets the very timer, of each kind") {
    for_each_way([](auto make) {
      int runs = 0;
      timer t = make([&](timer& self) {
        if (++runs == 1) {
          self.reset(1h);
        } else {
          self.stop();
        }
      });
      sleep_for(10ms);
      CHECK(runs == 1);
      CHECK(t.remaining() > 59min);
      CHECK(t.reset(1ms));
      sleep_for(10ms);
      CHECK(runs == 2);
      CHECK_FALSE(t.stop());
    });
  }

  TEST_CASE("gets it from a plain thread's after_func and post as well") {
    in_runtime({}, [](vigil::runtime& rt) {
      std::atomic<int> runs{0};
      const auto twice = [&runs](timer& self) {
        if (runs.fetch_add(1) < 2) self.reset(1us);
      };
      std::thread([&] {
        rt.after_func(1us, twice);
        rt.post(twice, vigil::stoppable);
      }).join();
      while (runs.load() < 4)
        sleep_for(100us);
    });
  }

  TEST_CASE("frees its captures with its last run: they need not own a handle") {
    for_each_way([](auto make) {
      auto shared = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = shared;
      make([p = std::move(shared)](timer& self) { self.stop(); });
      sleep_for(10ms);
      CHECK(watch.expired());
    });
  }

  TEST_CASE("may keep a copy of it beyond the run") {
    in_virtual([] {
      timer kept;
      int runs = 0;
      after_func(1ms, [&](timer& self) {
        ++runs;
        kept = self;
      });
      sleep_for(10ms);
      CHECK_FALSE(kept.reset(1ms));
      sleep_for(10ms);
      CHECK(runs == 2);
      kept = {};
    });
  }

  TEST_CASE("cannot start it while it is stopped for good") {
    for_each_way([](auto make) {
      int runs = 0;
      vigil::scoped_timer t = make([&](timer& self) {
        ++runs;
        sleep_for(20ms);
        CHECK_FALSE(self.reset(1ms));
        CHECK_FALSE(self.stop());
      });
      sleep_for(10ms);
      t = timer();
      CHECK(runs == 1);
      sleep_for(1s);
      CHECK(runs == 1);
    });
  }

  TEST_CASE("is called without it if it can be") {
    struct both {
      int* without;

      void operator()() const { ++*without; }

      void operator()(timer&) const { FAIL("called with its timer"); }
    };

    in_virtual([] {
      int without = 0;
      after_func(1ms, both{&without});
      after_func(1ms, [&without](auto&&... none) {
        CHECK(sizeof...(none) == 0);
        ++without;
      });
      sleep_for(10ms);
      CHECK(without == 2);
    });
  }

  TEST_CASE("may be a std::function, and may not be an empty one") {
    in_virtual([] {
      int runs = 0;
      const std::function<void(timer&)> f = [&](timer& self) {
        ++runs;
        CHECK_FALSE(self.stop());
      };
      after_func(1ms, f);
      sleep_for(10ms);
      CHECK(runs == 1);
      CHECK_THROWS_AS(after_func(1ms, std::function<void(timer&)>()), std::invalid_argument);
    });
  }
}
