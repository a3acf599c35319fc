// Virtual time: 1 000 fibers live through a simulated week of sleeps, periodic work,
// resets and stops. Every wake-up is checked to come exactly at its deadline, and the
// order of all wake-ups is hashed: the same seed must give the same order, and another
// seed another order.
#include "harness.hpp"

#include <vigil/testing.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace bench {
namespace {

using namespace std::chrono_literals;
using vigil::clock;

constexpr std::size_t fibers = 1'000;

struct week {
  std::uint64_t wake_ups = 0;
  std::uint64_t inexact = 0;
  std::uint64_t prevented = 0;  // armings that a reset or stop took back
  std::uint64_t order = 14695981039346656037u;
  clock::duration wanted{};
};

void note_wake_up(week& w, std::uint64_t who, clock::time_point deadline) {
  ++w.wake_ups;
  if (clock::now() != deadline) ++w.inexact;
  w.order = (w.order ^ who) * 1099511628211u;
}

// A cheap generator, so that its own time is not what is measured (xorshift64).
struct small_dice {
  std::uint64_t state;

  std::uint64_t next() noexcept {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
};

// Lives with three sources of wake-ups: sleeps, one every(), and a timeout that each
// wake-up of the fiber pushes back or stops, and that is reached now and then.
void live(week& w, std::uint64_t who, clock::time_point end) {
  small_dice dice{(who + 1) * 0x9e3779b97f4a7c15u};
  const auto twice = static_cast<std::uint64_t>(2 * w.wanted.count());

  struct timeout {
    vigil::timer timer;
    clock::time_point deadline;
  };

  // Coarse periods, so that equal deadlines are common and the seed has
  // something to decide.
  const auto period = std::chrono::duration_cast<std::chrono::seconds>(w.wanted) + 1s;
  auto due = clock::now() + period;
  vigil::timer beat = vigil::every(period, [&w, who, due, period]() mutable {
    note_wake_up(w, who, due);
    due += period;
  });
  timeout idle;
  idle.deadline = clock::now() + w.wanted;
  idle.timer =
      vigil::after_func(w.wanted, [&w, who, &idle] { note_wake_up(w, who, idle.deadline); });
  while (clock::now() < end) {
    const auto deadline =
        clock::now() + std::chrono::nanoseconds(1 + static_cast<nanos>(dice.next() % twice));
    vigil::sleep_until(deadline);
    note_wake_up(w, who, deadline);
    if (dice.next() % 8 == 0) {
      if (idle.timer.stop()) ++w.prevented;
    } else {
      idle.deadline = clock::now() + 2 * w.wanted - 1s;
      if (idle.timer.reset(2 * w.wanted - 1s)) ++w.prevented;
    }
  }
  beat.stop_and_wait();
  idle.timer.stop_and_wait();
}

week live_through(std::uint64_t seed, std::uint64_t wake_ups) {
  week w;
  // About two wake-ups in the time wanted, and a few timeouts.
  const clock::duration length = std::chrono::hours(7 * 24);
  w.wanted = length * (fibers * 2) / static_cast<nanos>(wake_ups);
  vigil::testing::run_virtual({.seed = seed}, [&] {
    const auto end = clock::now() + length;
    std::vector<vigil::fiber<>> all;
    for (std::uint64_t i = 0; i < fibers; ++i) {
      all.push_back(vigil::spawn([&w, i, end] { live(w, i, end); }));
    }
    for (auto& f : all)
      f.join();
  });
  return w;
}

}  // namespace

void virtual_time(report& out) {
  const std::uint64_t aim = out.is_asked_for() ? 50'000'000 : 2'000'000;
  const std::size_t repetitions = out.is_asked_for() ? 5 : 3;
  week last;
  std::vector<double> each;
  std::vector<double> cpu_each;
  bool same = true;
  for (std::size_t i = 0; i < repetitions; ++i) {
    const nanos start = now();
    const nanos cpu_start = cpu_time();
    const week w = live_through(1, aim);
    each.push_back(static_cast<double>(now() - start) / static_cast<double>(w.wake_ups));
    cpu_each.push_back(static_cast<double>(cpu_time() - cpu_start) /
                       static_cast<double>(w.wake_ups));
    same = same && (i == 0 || w.order == last.order);
    last = w;
  }
  const week other = live_through(2, aim / 50);
  const week again = live_through(1, aim / 50);
  out.add("wake-ups", static_cast<double>(last.wake_ups), "");
  out.add("not at exactly its deadline", static_cast<double>(last.inexact), "");
  out.add("armings taken back by reset or stop", static_cast<double>(last.prevented), "");
  out.add("wall time for each wake-up, median", median(each), "ns");
  out.add("CPU for each wake-up, median", median(cpu_each), "ns");
  out.add("the same seed gives the same order", same ? 1 : 0, "", same ? "yes" : "NO");
  const bool differs = other.order != again.order;
  out.add("another seed gives another order", differs ? 1 : 0, "", differs ? "yes" : "NO");
}

}  // namespace bench
