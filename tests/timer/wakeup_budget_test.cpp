// options::wakeups_per_second: deadlines that share their wake-ups.
#include "support/in_runtime.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::clock;

namespace {

// Ten instants in each second.
vigil::testing::virtual_options ten() {
  vigil::testing::virtual_options how;
  how.runtime.wakeups_per_second = 10;
  return how;
}

// The time since the start at which the timer fires that arm(f) makes.
template <class Arm>
std::chrono::nanoseconds fires_after(Arm arm) {
  const auto start = clock::now();
  const auto fired = vigil::make_channel<clock::time_point>(1);
  const auto timer = arm([&] { fired.send(clock::now()); });
  return *fired.recv() - start;
}

}  // namespace

TEST_SUITE("budget of wake-ups") {
  TEST_CASE("a deadline is put off to the next instant, if an eighth of its distance reaches it") {
    in_virtual(ten(), [] {
      const auto after = [](auto d) {
        return fires_after([&](auto f) { return vigil::after_func(d, f); });
      };
      // The run begins at a full second.
      CHECK(after(810ms) == 900ms);  // 90 ms of 101
      vigil::sleep_for(100ms);
      CHECK(after(710ms) == 710ms);  // 90 ms of 88
      vigil::sleep_until(vigil::testing::epoch + 3s);
      CHECK(after(700ms) == 700ms);
      vigil::sleep_until(vigil::testing::epoch + 5s);
      const auto odd = after(1s + 1ns);  // slack is counted in whole microseconds
      CHECK(odd > 1100ms - 1us);
      CHECK(odd <= 1100ms);
    });
  }

  TEST_CASE("a fiber's sleeps and limits as well") {
    in_virtual(ten(), [] {
      const auto start = clock::now();
      vigil::sleep_for(950ms);
      CHECK(clock::now() - start == 1s);
      const vigil::channel<int> nothing = vigil::make_channel<int>();
      CHECK(nothing.recv_for(1950ms).is_timeout());
      CHECK(clock::now() - start == 3s);
      auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 990ms);
      CHECK_THROWS_AS(nothing.recv(ctx), vigil::cancelled);
      CHECK(clock::now() - start == 4s);
    });
  }

  TEST_CASE("at most a second, however far the deadline is") {
    vigil::testing::virtual_options how;
    how.runtime.wakeups_per_second = 1;
    in_virtual(how, [] {
      CHECK(fires_after([](auto f) { return vigil::after_func(1h + 1ms, f); }) == 1h + 1s);
    });
  }

  TEST_CASE("short waits and timers with a slack of their own are left alone") {
    in_virtual(ten(), [] {
      const auto start = clock::now();
      vigil::sleep_for(9'999us);
      CHECK(clock::now() - start == 9'999us);
      vigil::sleep_until(start + 1s);
      const auto with_slack = [](auto slack) {
        return fires_after([&](auto f) {
          vigil::timer t = vigil::after_func(1h, f);
          t.set_slack(slack);
          t.reset(950ms);
          return t;
        });
      };
      CHECK(with_slack(0s) == 950ms);
      vigil::sleep_until(start + 3s);
      CHECK(with_slack(20ms) == 970ms);
      vigil::sleep_until(start + 5s);
      const vigil::ticker exact(950ms);
      exact.set_slack(0s);
      exact.reset(950ms);
      static_cast<void>(exact.channel().recv());
      CHECK(clock::now() - start == 5950ms);
    });
  }

  TEST_CASE("periodic timers keep their phase") {
    in_virtual(ten(), [] {
      const auto start = clock::now();
      std::vector<std::chrono::nanoseconds> at;
      vigil::timer every = vigil::every(1950ms, [&] { at.push_back(clock::now() - start); });
      vigil::sleep_for(12s);
      every.stop();
      CHECK(at ==
            std::vector<std::chrono::nanoseconds>{2s, 3900ms, 5900ms, 7800ms, 9800ms, 11700ms});
    });
  }

  TEST_CASE("many timers share their wake-ups, and stats say how many") {
    const auto wakes_of = [](std::uint32_t per_second, std::uint64_t& saved) {
      vigil::testing::virtual_options how;
      how.runtime.wakeups_per_second = per_second;
      std::set<clock::time_point> instants;
      in_virtual(how, [&] {
        seeded dice(1);
        for (int i = 0; i < 1000; ++i) {
          vigil::after_func(std::chrono::microseconds(1'000'000 + dice.below(1'000'000)),
                            [&] { instants.insert(clock::now()); });
        }
        vigil::sleep_for(3s);
        saved = vigil::stats().wakeups_saved;
      });
      return instants.size();
    };
    std::uint64_t saved = 1;
    CHECK(wakes_of(0, saved) > 950);
    CHECK(saved == 0);
    CHECK(wakes_of(10, saved) == 10);  // 1.1 to 2.0 s
    CHECK(saved >= 900);
    CHECK(saved < 1000);
  }

  TEST_CASE("nothing fires early, under any goal and distance") {
    seeded dice(7);
    for (const std::uint32_t goal : {1u, 3u, 7u, 60u, 999u, 1'000'000u}) {
      vigil::testing::virtual_options how;
      how.runtime.wakeups_per_second = goal;
      in_virtual(how, [&] {
        for (int i = 0; i < 200; ++i) {
          const std::chrono::nanoseconds d(static_cast<std::int64_t>(dice.below(2'000'000'000)));
          const auto start = clock::now();
          vigil::sleep_for(d);
          const auto took = clock::now() - start;
          CHECK(took >= d);
          CHECK(took <= d + std::min<std::chrono::nanoseconds>(d / 8, 1s));
          if (d < 10ms) CHECK(took == d);
        }
      });
    }
  }

  // A busy machine makes the waits fewer: what is late is so together.
  TEST_CASE("a worker sleeps once for the many timers of an instant") {
    real_options how{.workers = {1}};
    how.settings.wakeups_per_second = 20;
    in_runtime(how, [] {
      constexpr int many = 200;
      vigil::latch all(many);
      int early = 0;
      const auto before = vigil::stats().kernel_waits;
      const auto start = clock::now();
      for (int i = 0; i < many; ++i) {
        const auto distance = 800ms + i * 500us;   // an eighth of it is two intervals
        const auto due = clock::now() + distance;  // the deadline, or just before
        vigil::after_func(distance, [&, due] {
          if (clock::now() < due) ++early;
          all.count_down();
        });
      }
      const auto span = many * 500us + (clock::now() - start);  // of the deadlines
      all.wait();
      const auto waits = vigil::stats().kernel_waits - before;
      CHECK(early == 0);
      const auto instants = static_cast<std::uint64_t>(span / 50ms) + 2;
      CHECK(waits <= instants + 5);
    });
  }

  TEST_CASE("a goal out of range is refused") {
    vigil::options o;
    o.wakeups_per_second = 1'000'001;
    CHECK_THROWS_AS(vigil::runtime{o}, std::invalid_argument);
  }
}
