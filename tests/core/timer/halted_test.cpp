// The end of a scoped_timer, and stop_and_wait(), against a callback that arms its own
// timer: afterwards nothing runs and nothing is pending (SW1-SW3 of stop_waiters.hpp).
#include "core/timer/timer_test.hpp"
#include "support/note.hpp"

#include <vigil/clocks.hpp>

#include <functional>

using namespace vigil::testing_support;
using vigil::scoped_timer;

namespace {

// The callbacks below use it, and it is gone at the end of its scope.
struct owner {
  bool is_alive = true;
  int runs = 0;
  int resets_in_vain = 0;

  ~owner() { is_alive = false; }

  // A run that lasts 20 ms and then arms its timer, as often as `resets` says.
  void run(const std::function<bool()>& reset, int resets = 1) {
    ++runs;
    sleep_for(20ms);
    for (int i = 0; i < resets; ++i)
      if (!reset()) ++resets_in_vain;
    REQUIRE(is_alive);
  }
};

struct way {
  const char* name;
  std::function<timer(std::function<void()>)> make;
};

const std::vector<way> ways = {
    {"after_func", [](auto f) { return after_func(10ms, f); }},
    {"every", [](auto f) { return vigil::every(10ms, f); }},
    {"every from_end", [](auto f) { return vigil::every(10ms, f, vigil::from_end); }},
    {"post",
     [](auto f) {
       timer t = vigil::post(f, vigil::stoppable);
       return t;
     }},
    {"defer", [](auto f) { return vigil::defer(f, vigil::stoppable); }},
};

void nothing_comes_after(const owner& o) {
  const int runs = o.runs;
  sleep_for(1s);
  CHECK(o.runs == runs);
}

}  // namespace

TEST_SUITE("halted timers") {
  TEST_CASE("the end of a scoped_timer outlasts a reset in its callback") {
    for (const way& w : ways) {
      NOTE("w.name: ", w.name);
      for (const auto again : {10ms, 0ms}) {
        if (again == 0ms && std::string(w.name).starts_with("every")) continue;
        for_each_seed(10, [&] {
          auto o = std::make_unique<owner>();
          {
            scoped_timer t;
            t = w.make([&] { o->run([&] { return t->reset(again); }); });
            sleep_for(20ms);
          }
          REQUIRE(o->runs > 0);
          nothing_comes_after(*o);
        });
      }
    }
  }

  TEST_CASE("so does an assignment to a scoped_timer") {
    for_each_seed(10, [] {
      auto o = std::make_unique<owner>();
      scoped_timer t;
      timer first;
      t = first = after_func(10ms, [&] { o->run([&] { return first.reset(10ms); }); });
      sleep_for(20ms);
      bool second_ran = false;
      t = after_func(10ms, [&] { second_ran = true; });
      CHECK(o->runs == 1);
      nothing_comes_after(*o);
      CHECK(second_ran);
    });
  }

  TEST_CASE("stop_and_wait counts what the callback arms meanwhile, whose reset is false") {
    for (const way& w : ways) {
      NOTE("w.name: ", w.name);
      for_each_seed(5, [&] {
        owner o;
        timer t;
        t = w.make([&] { o.run([&] { return t.reset(10ms); }, 2); });
        sleep_for(15ms);
        REQUIRE(o.runs == 1);
        CHECK(t.stop_and_wait());
        CHECK(o.resets_in_vain == 2);
        CHECK(t.deadline() == vigil::clock::time_point::max());
        nothing_comes_after(o);
        CHECK_FALSE(t.stop_and_wait());
        t.reset(10ms);  // by another
        sleep_for(15ms);
        CHECK(o.runs == 2);
        t.stop_and_wait();
      });
    }
  }

  TEST_CASE("a callback that arms its timer to fire at once gets no second run") {
    for_each_seed(20, [] {
      owner o;
      timer t;
      t = after_func(10ms, [&] {
        o.run([&] {
          const bool before = t.reset(0s);
          sleep_for(1ms);
          return before;
        });
      });
      sleep_for(20ms);
      CHECK(t.stop_and_wait());
      CHECK(o.runs == 1);
      nothing_comes_after(o);
    });
  }

  TEST_CASE("wall and boot timers are halted as well") {
    const auto check = [](auto clock, auto make) {
      using clock_type = decltype(clock);
      for_each_seed(10, [&] {
        owner o;
        using handle = decltype(make(std::function<void()>{}));
        handle t;
        t = make(std::function<void()>(
            [&] { o.run([&] { return t.reset(clock_type::now() + 10ms); }, 2); }));
        sleep_for(15ms);
        REQUIRE(o.runs == 1);
        CHECK(t.stop_and_wait());
        CHECK(o.resets_in_vain == 2);
        CHECK_FALSE(t.stop());
        vigil::testing::step_wall(100h);
        nothing_comes_after(o);
        t.reset(clock_type::now() + 10ms);
        sleep_for(15ms);
        CHECK(o.runs == 2);
        t.stop_and_wait();
      });
    };
    check(vigil::wall_clock{},
          [](auto f) { return vigil::wall::after_func_at(vigil::wall_clock::now() + 10ms, f); });
    check(vigil::boot_clock{},
          [](auto f) { return vigil::boot::after_func_at(vigil::boot_clock::now() + 10ms, f); });
  }

  TEST_CASE("when stop_and_wait has given up, the run arms nothing and others may") {
    for_each_seed(10, [] {
      owner o;
      timer t;
      t = after_func(10ms, [&] { o.run([&] { return t.reset(10ms); }, 2); });
      sleep_for(20ms);
      const auto soon = vigil::with_timeout(vigil::background(), 1ms);
      CHECK_THROWS_AS(t.stop_and_wait(soon.ctx), vigil::cancelled);
      sleep_for(100ms);
      CHECK(o.runs == 1);
      CHECK(o.resets_in_vain == 2);
      CHECK_FALSE(t.stop());
      t.reset(10ms);
      sleep_for(100ms);
      CHECK(o.runs > 1);
      t.stop_and_wait();
    });
  }

  TEST_CASE("a reset by another brings it back while the run that was given up goes on") {
    in_virtual([] {
      int runs = 0;
      timer t = after_func(10ms, [&] {
        if (++runs == 1) sleep_for(1s);
      });
      sleep_for(20ms);
      const auto soon = vigil::with_timeout(vigil::background(), 1ms);
      CHECK_THROWS_AS(t.stop_and_wait(soon.ctx), vigil::cancelled);
      CHECK_FALSE(t.reset(10ms));
      CHECK(t.remaining() == 10ms);
      sleep_for(20ms);
      CHECK(runs == 2);
      CHECK_FALSE(t.stop_and_wait());  // waits for the first
      CHECK(runs == 2);
    });
  }

  TEST_CASE("a run that was given up does not change the period either") {
    in_virtual([] {
      for (const bool from_end : {false, true}) {
        int runs = 0;
        const auto f = [&](timer& self) {
          if (++runs > 1) return;
          sleep_for(60ms);
          CHECK_FALSE(self.reset(1ms));
        };
        const timer t = from_end ? vigil::every(10ms, f, vigil::from_end) : vigil::every(10ms, f);
        sleep_for(15ms);
        const auto soon = vigil::with_timeout(vigil::background(), 1ms);
        CHECK_THROWS_AS(t.stop_and_wait(soon.ctx), vigil::cancelled);
        t.reset(100ms);  // to 116 ms, while the first run goes on to 70 ms
        sleep_for(950ms);
        CHECK(runs == 1 + 9);
        t.stop();
      }
    });
  }

  TEST_CASE("a run that was given up arms nothing even beside later runs") {
    for_each_seed(20, [] {
      int runs = 0;
      timer t;
      t = after_func(1ms, [&] {
        const int run = ++runs;
        sleep_for(run == 1 ? 100ms : 10ms);
        if (run <= 2) t.reset(50ms);
      });
      sleep_for(2ms);
      const auto soon = vigil::with_timeout(vigil::background(), 1ms);
      CHECK_THROWS_AS(t.stop_and_wait(soon.ctx), vigil::cancelled);
      t.reset(1ms);     // the second run lasts from 4 to 14 ms
      sleep_for(20ms);  // and has armed a third for 64 ms
      CHECK(runs == 2);
      CHECK(t.remaining() <= 50ms);
      t.reset(1h);
      sleep_for(200ms);  // the first run has ended
      CHECK(runs == 2);
      CHECK(t.remaining() > 50min);
      CHECK(t.stop());
    });
  }

  TEST_CASE("a reset by another during the wait is stopped with the rest") {
    for_each_seed(10, [] {
      owner o;
      timer t = after_func(10ms, [&] { o.run([] { return true; }); });
      sleep_for(20ms);
      auto other = vigil::spawn([&] {
        sleep_for(1ms);
        t.reset(1ms);
      });
      CHECK(t.stop_and_wait());
      nothing_comes_after(o);
      other.join();
    });
  }

  TEST_CASE("of several that wait at once one learns what was prevented") {
    for_each_seed(10, [] {
      owner o;
      timer t;
      t = after_func(10ms, [&] { o.run([&] { return t.reset(1ms); }); });
      sleep_for(20ms);
      std::vector<vigil::fiber<bool>> all;
      for (int i = 0; i < 3; ++i)
        all.push_back(vigil::spawn([&] { return t.stop_and_wait(); }));
      int told = 0;
      for (auto& f : all)
        told += f.join() ? 1 : 0;
      CHECK(told == 1);
      nothing_comes_after(o);
    });
  }

  TEST_CASE("captures die after a halted run, and with the last handle") {
    in_virtual([] {
      const auto alive = std::make_shared<int>(0);
      timer t;
      t = after_func(10ms, [&t, held = alive] {
        sleep_for(20ms);
        t.reset(0s);
      });
      sleep_for(20ms);
      t.stop_and_wait();
      CHECK(alive.use_count() == 2);
      t = {};
      CHECK(alive.use_count() == 1);
      {
        timer u;
        auto* const p = &u;
        u = after_func(10ms, [p, held = alive] {
          sleep_for(20ms);
          p->reset(0s);
        });
        sleep_for(20ms);
        const auto soon = vigil::with_timeout(vigil::background(), 1ms);
        CHECK_THROWS_AS(u.stop_and_wait(soon.ctx), vigil::cancelled);
        sleep_for(50ms);
      }
      CHECK(alive.use_count() == 1);
    });
  }

  TEST_CASE("on several workers the scope's end holds against resets that are due at once") {
    in_runtime({.workers = {2, 4}}, [] {
      for (int round = 0; round < 200; ++round) {
        auto o = std::make_unique<std::atomic<int>>(0);
        {
          std::atomic<bool> begun{false};
          const scoped_timer t = after_func(0s, [&](timer& self) {
            o->fetch_add(1);
            begun.store(true);
            for (int i = 0; i < 3; ++i) {
              self.reset(0s);
              vigil::this_fiber::yield();
            }
          });
          while (!begun.load())
            vigil::this_fiber::yield();
        }
        o.reset();  // a run that is under way now would be seen by AddressSanitizer
      }
    });
  }
}
