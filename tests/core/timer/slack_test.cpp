#include "core/timer/timer_service.hpp"
#include "core/timer/timer_test.hpp"

#include <map>

namespace {

using namespace vigil::testing_support;

// A timer with slack; slack applies from the arming after set_slack().
template <class F>
timer with_slack(nanoseconds d, nanoseconds slack, F f) {
  timer t = after_func(1h, std::move(f));
  t.set_slack(slack);
  t.reset(d);
  return t;
}

}  // namespace

TEST_SUITE("timer slack") {
  TEST_CASE("lets a timer share the wake-up of a later one") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::map<char, nanoseconds> at;
      timer a = with_slack(10ms, 10ms, [&] { at['a'] = since(start); });
      timer b = after_func(15ms, [&] { at['b'] = since(start); });
      sleep_for(1s);
      CHECK(at['a'] == 15ms);
      CHECK(at['b'] == 15ms);
    });
  }

  TEST_CASE("alone it fires at the end of its slack") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      nanoseconds at{};
      timer a = with_slack(10ms, 5ms, [&] { at = since(start); });
      CHECK(a.deadline() == start + 10ms);
      sleep_for(1s);
      CHECK(at == 15ms);
    });
  }

  TEST_CASE("lets a prefix of the heap go early and nothing deeper") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::map<char, nanoseconds> at;
      timer first = after_func(12ms, [&] { at['f'] = since(start); });        // key 12
      timer close = with_slack(11ms, 4ms, [&] { at['c'] = since(start); });   // key 15
      timer wall = after_func(50ms, [&] { at['w'] = since(start); });         // key 50
      timer deep = with_slack(10ms, 100ms, [&] { at['d'] = since(start); });  // key 110
      sleep_for(1s);
      CHECK(at['f'] == 12ms);
      CHECK(at['c'] == 12ms);  // next to the top, and its own time has come
      CHECK(at['w'] == 50ms);
      CHECK(at['d'] == 50ms);  // behind the wall until the wall goes
    });
  }

  TEST_CASE("never lets a timer fire early nor later than deadline plus slack") {
    for_each_seed(20, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto start = vigil::clock::now();
      std::vector<timer> timers;
      int runs = 0;
      for (int i = 0; i < 300; ++i) {
        const auto d = std::chrono::microseconds(1 + dice.below(10'000));
        const auto slack = std::chrono::microseconds(dice.below(3) == 0 ? 0 : dice.below(2'000));
        timers.push_back(with_slack(d, slack, [&runs, start, d, slack] {
          ++runs;
          CHECK(since(start) >= d);
          CHECK(since(start) <= d + slack);
        }));
      }
      sleep_for(1s);
      CHECK(runs == 300);
    });
  }

  TEST_CASE("saves wake-ups") {
    const auto jumps = [](nanoseconds slack) {
      std::vector<nanoseconds> at;
      in_virtual([&] {
        std::vector<timer> timers;
        const auto start = vigil::clock::now();
        for (int i = 1; i <= 100; ++i) {
          timers.push_back(with_slack(i * 100us, slack, [&at, start] {
            if (at.empty() || at.back() != since(start)) at.push_back(since(start));
          }));
        }
        sleep_for(1s);
      });
      return at.size();
    };
    CHECK(jumps(0ms) == 100);
    CHECK(jumps(1ms) <= 10);
  }

  TEST_CASE("a negative slack is none and a huge one is cut") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      nanoseconds at{};
      timer t = after_func(10ms, [&] { at = since(start); });
      t.set_slack(-1s);
      t.reset(10ms);
      sleep_for(10ms + 1ns);
      CHECK(at == 10ms);
      t.set_slack(std::chrono::hours::max());
      t.reset(1s);
      sleep_for(2h);
      CHECK(at > 1s);
      timer().set_slack(1s);  // an empty handle has no slack
    });
  }
}

TEST_SUITE("send_time") {
  using vigil::detail::timer_service;

  struct received {
    std::vector<vigil::detail::nanos> values;
    std::string fiber;

    static void take(void* self, vigil::detail::nanos when, vigil::detail::fire_again*) noexcept {
      auto& r = *static_cast<received*>(self);
      r.values.push_back(when);
      r.fiber = vigil::this_fiber::name();
    }
  };

  TEST_CASE("hands over exactly the deadline, on the timer fiber") {
    in_virtual([] {
      auto& service = static_cast<timer_service&>(vigil::detail::current_scheduler()->timers());
      received r;
      auto* const t = service.make_send(&received::take, &r, service.generation());
      const auto deadline = vigil::clock::now().time_since_epoch().count() + 1'000'000'007;
      CHECK_FALSE(service.arm_at(*t, deadline));
      sleep_for(1s);
      CHECK(r.values.empty());
      sleep_for(1s);
      CHECK(r.values == std::vector<vigil::detail::nanos>{deadline});
      CHECK(r.fiber == "timer fiber");
      CHECK_FALSE(service.stop(*t));
      release_record(*t);
    });
  }

  TEST_CASE("stop and a new arming decide as for every timer") {
    in_virtual([] {
      auto& service = static_cast<timer_service&>(vigil::detail::current_scheduler()->timers());
      received r;
      auto* const t = service.make_send(&received::take, &r, service.generation());
      const auto start = vigil::clock::now().time_since_epoch().count();
      service.arm_at(*t, start + 1000);
      CHECK(service.stop(*t));
      CHECK_FALSE(service.stop(*t));
      CHECK_FALSE(service.arm_at(*t, start + 5000));
      CHECK(service.arm_at(*t, start + 3000));
      CHECK(service.arm_at(*t, start + 4000));
      sleep_for(1s);
      CHECK(r.values == std::vector<vigil::detail::nanos>{start + 4000});
      service.arm_at(*t, start - 5);  // a deadline that has already passed
      vigil::testing::settle();
      CHECK(r.values.size() == 2);
      CHECK(r.values.back() == start - 5);
      service.arm_at(*t, INT64_MAX);
      sleep_for(std::chrono::hours(24 * 365 * 100));
      CHECK(r.values.size() == 2);
      CHECK(service.stop(*t));
      release_record(*t);
    });
  }
}

TEST_SUITE("timer statistics") {
  TEST_CASE("armed equals fired plus stopped plus pending") {
    in_virtual([] {
      std::vector<timer> timers;
      for (int i = 1; i <= 30; ++i)
        timers.push_back(after_func(i * 1s, [] {}));
      for (std::size_t i = 0; i < 10; ++i)
        timers[i].stop();
      for (std::size_t i = 10; i < 15; ++i)
        timers[i].reset(40s);
      sleep_for(25s + 1ns);
      const auto s = vigil::stats();
      CHECK(s.timers_armed == 31);
      CHECK(s.timers_stopped == 10);
      CHECK(s.timers_reset == 5);
      CHECK(s.timers_fired == 11);  // timers 16 to 25, and the sleep
      CHECK(s.timers_pending == 10);
      CHECK(s.timers_armed == s.timers_fired + s.timers_stopped + s.timers_pending);
      CHECK(s.heap_entries >= s.timers_pending);
      CHECK(s.dead_entries == s.heap_entries - s.timers_pending);
      std::uint64_t counted = 0;
      for (const auto n : s.lateness.count)
        counted += n;
      CHECK(counted == s.timers_fired);
      CHECK(s.lateness.max_nanos == 0);
      CHECK(s.lateness.quantile_nanos(0.5) == 0);
    });
  }

  TEST_CASE("lateness is counted in powers of two of a microsecond") {
    vigil::delay_histogram h;
    CHECK(h.quantile_nanos(0.5) == 0);
    h.count[0] = 50;
    h.count[4] = 49;
    h.count[10] = 1;
    h.max_nanos = 900'000;
    CHECK(h.quantile_nanos(0.1) == 1'000);
    CHECK(h.quantile_nanos(0.6) == 16'000);
    CHECK(h.quantile_nanos(0.995) == 900'000);
    CHECK(h.quantile_nanos(1) == 900'000);
  }
}
