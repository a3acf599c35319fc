// The thread that watches the workers' switches ends when all sleep, and no worker gets
// up unseen (SK1 to SK4 of stuck_watch.hpp).
#include "sched/report/stuck_watch.hpp"

#include "prove.hpp"
#include "sched/idle.hpp"

#include <memory>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::futex_watch;
using vigil::detail::idle_workers;
using vigil::detail::never;
using vigil::detail::sleeper;
using vigil::detail::stuck_presence;

namespace {

struct watched {
  watched() {
    thread.bring_back();
    idle.start_looking();
    idle.lie_down(place, never, never);
  }

  futex_watch watch;
  idle_workers idle{watch};
  sleeper place;
  stuck_presence thread;
};

}  // namespace

TEST_CASE("stuck: a worker that gets up while the thread ends is watched") {
  prove(
      "stuck: one gets up as all have slept",
      [] {
        auto s = std::make_unique<watched>();
        bool ends = false;
        std::thread looks([&] { ends = s->thread.leaves([&] { return s->idle.asleep() == 1; }); });
        s->idle.stay_awake(s->place);
        const bool starts = s->thread.bring_back();
        looks.join();
        model::require(s->thread.is_here(), "somebody is there");
        model::require(starts == ends, "the worker starts one if the old one ends, and only then");
        s->idle.stop_looking();
      },
      also::unbounded);
}

TEST_CASE("stuck: one of two workers that get up starts the thread") {
  prove("stuck: two get up as all have slept", [] {
    auto s = std::make_unique<watched>();
    sleeper second;
    s->idle.start_looking();
    s->idle.lie_down(second, never, never);
    bool ends = false;
    bool starts = false;
    std::thread looks([&] { ends = s->thread.leaves([&] { return s->idle.asleep() == 2; }); });
    std::thread other([&] {
      s->idle.stay_awake(second);
      starts = s->thread.bring_back();
    });
    s->idle.stay_awake(s->place);
    const bool starts_too = s->thread.bring_back();
    looks.join();
    other.join();
    model::require(s->thread.is_here(), "somebody is there");
    model::require(starts + starts_too == (ends ? 1 : 0), "one is started for one that ends");
    s->idle.stop_looking();
    s->idle.stop_looking();
  });
}
