// Timers on wall time, under steps of the wall clock. None comes before that clock has
// read its time, and each comes once or is stopped.
#include "core/clocks/clock_hub.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "soak/world.hpp"

#include <vigil/clocks.hpp>
#include <vigil/testing.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

namespace vigil::soak {
namespace {

struct wall_ledger : ledger {
  using ledger::ledger;
  opened armed{*this, "armed"};
  closed fired{*this, "fired"};
  closed stopped{*this, "stopped"};
  note steps{*this, "steps of the clock"};
};

// On real time as if the clock had been set: the library is told of it as the kernel
// tells it.
void step_wall(const world& w, nanoseconds by) {
  if (w.how.is_virtual) {
    testing::step_wall(by);
    return;
  }
  detail::clock_hub& hub = *detail::clock_hub::of(*detail::require_fiber("soak").sched);
  hub.shift(detail::clock_kind::wall, by.count());
  hub.listener().pretend_step();
}

struct wall_timer {
  wall::timer handle;
  wall_clock::time_point due;
  std::atomic<int> runs{0};
};

// One fiber steps the clock, and it alone.
void play_wall(world& w, wall_ledger& l, dice& d) {
  // The farthest that the wall clock has been ahead of the runtime's in this round, or
  // more: some time may pass between the two readings.
  const auto ahead = std::make_shared<std::atomic<std::int64_t>>(0);
  const auto see_clock = [&] {
    const nanoseconds before = clock::now().time_since_epoch();
    const std::int64_t now = (wall_clock::now().time_since_epoch() - before).count();
    if (ahead->load() == 0 || now > ahead->load()) ahead->store(now);
  };
  see_clock();
  std::vector<std::shared_ptr<wall_timer>> all;
  const auto stop_all = [&] {
    for (const auto& t : all) {
      if (!t->handle) continue;
      const bool prevented = t->handle.stop_and_wait();
      if (prevented) ++l.stopped;
      l.must(t->runs.load() == (prevented ? 0 : 1), "a wall timer was neither fired nor stopped");
      t->handle = {};
    }
  };
  nanoseconds moved{0};
  try {
    for (std::uint32_t n = 1 + d.below(6); n != 0; --n) {
      // In the list before it is armed: its callback uses it.
      const auto& t = all.emplace_back(std::make_shared<wall_timer>());
      t->due = wall_clock::now() + w.draw(d);
      const auto run = [&l, ahead, own = t.get(), due = t->due] {
        ++l.fired;
        l.must(own->runs.fetch_add(1) == 0, "a wall timer fired twice");
        // 1 us: the kernel rounds its two clocks each for itself.
        const auto latest = clock::now().time_since_epoch() + nanoseconds(ahead->load()) + 1us;
        l.must(latest >= due.time_since_epoch(), "a wall timer came before the clock read it");
      };
      t->handle = wall::after_func_at(t->due, run);
      ++l.armed;
    }
    for (std::uint32_t n = d.below(5); n != 0; --n) {
      sleep_for(w.draw(d) / 4);
      const nanoseconds by = (d.one_in(2) ? 1 : -1) * w.draw(d);
      // Ahead before the step is told.
      if (by > 0ns) ahead->fetch_add(by.count());
      step_wall(w, by);
      moved += by;
      ++l.steps;
      see_clock();
    }
    sleep_for(w.draw(d));
  } catch (...) {
    stop_all();
    step_wall(w, -moved);
    throw;
  }
  stop_all();
  step_wall(w, -moved);
}

}  // namespace

void cast_clocks(world& w) {
  auto& l = *w.keep<wall_ledger>("wall timers");
  w.cast("wall timers", 1, [&](dice& d) { play_wall(w, l, d); });
}

}  // namespace vigil::soak
