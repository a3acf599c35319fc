#include "core/timer/timer_test.hpp"

#include <utility>

namespace {

using namespace vigil::testing_support;

// Records where it is destroyed.
struct witness {
  explicit witness(std::string& where) : place(&where) {}

  ~witness() {
    *place = vigil::this_fiber::id() == 0 ? "plain thread" : std::string(vigil::this_fiber::name());
    if (place->empty()) *place = "fiber";
  }

  witness(const witness&) = delete;
  witness& operator=(const witness&) = delete;
  std::string* place;
};

}  // namespace

TEST_SUITE("captures of a timer") {
  TEST_CASE("live while it is pending, even without a handle, and are destroyed after the run") {
    in_virtual([] {
      auto shared = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = shared;
      after_func(1s, [p = std::move(shared)] { CHECK(*p == 7); });
      CHECK_FALSE(watch.expired());
      sleep_for(2s);
      CHECK(watch.expired());
    });
  }

  TEST_CASE("live after the run while a handle is left, and are destroyed with the last one") {
    in_virtual([] {
      auto shared = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = shared;
      timer t = after_func(1s, [p = std::move(shared)] {});
      timer copy = t;
      sleep_for(2s);
      CHECK_FALSE(watch.expired());
      t = timer();
      CHECK_FALSE(watch.expired());
      copy = timer();
      CHECK(watch.expired());
    });
  }

  // Go: TestTimerGC.
  TEST_CASE("are destroyed at once with the last handle of a stopped one though its entry stays") {
    in_virtual([] {
      auto shared = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = shared;
      timer t = after_func(1h, [p = std::move(shared)] {});
      timer other = after_func(30min, [] {});
      sleep_for(1s);  // the entries are in the heap now
      CHECK(t.stop());
      CHECK_FALSE(watch.expired());
      t = timer();
      CHECK(watch.expired());
      CHECK(vigil::stats().heap_entries >= 2);
      CHECK(vigil::stats().dead_entries >= 1);
      other.stop();
    });
  }

  TEST_CASE("are destroyed after the callback that drops the last handle, not during it") {
    in_virtual([] {
      auto shared = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = shared;
      auto* t = new timer;
      *t = after_func(1s, [t, p = std::move(shared), &watch] {
        delete t;
        CHECK_FALSE(watch.expired());
        sleep_for(1s);
        CHECK(*p == 7);
      });
      sleep_for(1500ms);
      CHECK_FALSE(watch.expired());
      sleep_for(1s);
      CHECK(watch.expired());
    });
  }

  TEST_CASE("are never destroyed on the timer fiber") {
    for_each_seed(10, [] {
      std::string ran;
      std::string stopped;
      std::string dropped;
      after_func(1s, [w = std::make_unique<witness>(ran)] {});
      timer t = after_func(1s, [w = std::make_unique<witness>(stopped)] {});
      t.stop();
      timer d = after_func(1s, [w = std::make_unique<witness>(dropped)] {});
      sleep_for(2s);
      d = timer();
      t = timer();
      CHECK(ran == "callbacks");
      CHECK(stopped == "main");
      CHECK(dropped == "main");
    });
  }

  // Node, libuv: closing a loop with live timers; a second loop (loop_close,
  // default_loop_close).
  TEST_CASE("of callbacks never started are destroyed on the main fiber before run returns") {
    std::string pending;
    std::string due;
    vigil::options two;
    two.workers = 2;
    vigil::run(two, [&] {
      after_func(1h, [w = std::make_unique<witness>(pending)] {});
      vigil::this_fiber::no_park stay;
      after_func(-1s, [w = std::make_unique<witness>(due)] {});
    });
    CHECK(pending == "main");
    CHECK((due == "main" || due == "callbacks"));
    pending.clear();
    vigil::testing::run_virtual(
        [&] { after_func(1h, [w = std::make_unique<witness>(pending)] {}); });
    CHECK(pending == "main");
  }

  TEST_CASE("a destructor of a capture may start fibers and timers even in the shutdown") {
    struct restarter {
      ~restarter() {
        if (count == nullptr) return;
        vigil::go([c = count] { ++*c; });
        after_func(1h, [c = count] { ++*c; });
        vigil::this_fiber::yield();
      }

      explicit restarter(int* c) : count(c) {}

      restarter(restarter&& other) noexcept : count(std::exchange(other.count, nullptr)) {}

      int* count;
    };

    int count = 0;
    in_virtual([&] { after_func(1h, [r = restarter(&count)] { static_cast<void>(r); }); });
    CHECK(count == 1);
  }

  // Go: TestTimerFromInsideBubble.
  TEST_CASE("a handle that outlives its runtime stops nothing and says so on reset") {
    const auto shared = std::make_shared<int>(7);
    timer pending;
    timer stopped;
    timer ran;
    timer repeating;
    in_virtual([&] {
      pending = after_func(1h, [p = shared] {});
      stopped = after_func(1h, [p = shared] {});
      stopped.stop();
      ran = after_func(0s, [p = shared] {});
      repeating = vigil::every(1s, [p = shared] {});
      sleep_for(10s);
    });
    for (timer* t : {&pending, &stopped, &ran, &repeating}) {
      CHECK_FALSE(t->stop());
      CHECK_FALSE(t->stop_and_wait());
      CHECK_THROWS_AS(t->reset(1s), vigil::runtime_gone);
      if (t != &repeating) CHECK_THROWS_AS(t->reset(0s), vigil::runtime_gone);
      CHECK(t->deadline() == vigil::clock::time_point::max());
      CHECK(t->remaining() == std::chrono::nanoseconds::max());
    }
    CHECK(shared.use_count() == 1);
    pending = stopped = ran = repeating = timer();
  }

  TEST_CASE("may own the timer that is assigned to: they die when that is done") {
    struct owner {
      timer t;
    };

    in_virtual([] {
      const auto make = [] {
        auto o = std::make_shared<owner>();
        o->t = after_func(1h, [o] {});
        owner* const raw = o.get();
        raw->t.stop();
        return std::pair(raw, std::weak_ptr<owner>(o));
      };
      const auto [first, first_lives] = make();
      CHECK_FALSE(first_lives.expired());
      first->t = {};
      CHECK(first_lives.expired());
      const auto [second, second_lives] = make();
      const timer other = after_func(1h, [] {});
      second->t = other;
      CHECK(second_lives.expired());
      CHECK(other.stop());
    });
  }

  // Go: TestTimerFromInsideBubble.
  TEST_CASE("a handle of a runtime that has gone does nothing to the next one") {
    timer old;
    in_virtual([&] { old = after_func(1h, [] { FAIL("a timer of the past ran"); }); });
    in_virtual([&] {
      int runs = 0;
      after_func(1s, [&] { ++runs; });
      CHECK_FALSE(old.stop());
      CHECK_THROWS_AS(old.reset(1ms), vigil::runtime_gone);
      sleep_for(2h);
      CHECK(runs == 1);
      CHECK(vigil::stats().timers_armed == 2);  // the other timer, and the sleep
    });
  }

  TEST_CASE("handles dropped by plain threads while callbacks run leak nothing") {
    const auto shared = std::make_shared<int>(7);
    in_runtime({.workers = {1, 2, 4}}, [&](vigil::runtime& rt) {
      const int n = rounds(5000);
      std::thread dropper([&] {
        for (int i = 0; i < n; ++i) {
          timer t = rt.after_func(std::chrono::microseconds(i % 30), [p = shared] {});
          timer copy = t;
          if (i % 3 == 0) t.stop();
          if (i % 5 == 0) t.reset(1us);
        }
      });
      dropper.join();
      while (vigil::stats().timers_pending > 0)
        sleep_for(100us);
    });
    CHECK(shared.use_count() == 1);
  }
}
