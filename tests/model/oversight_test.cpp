// The overseer goes to rest, and nothing is left unseen (OV1 to OV5 of oversight.hpp).
#include "core/sched/idle/oversight.hpp"

#include "core/sched/idle/idle.hpp"
#include "prove.hpp"

#include <atomic>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::futex_watch;
using vigil::detail::idle_workers;
using vigil::detail::never;
using vigil::detail::oversight;
using vigil::detail::sleeper;

namespace {

struct watched {
  watched() {
    idle.overseen.begin();
    idle.start_looking();
    idle.lie_down(place, never, never);
  }

  futex_watch watch;
  idle_workers idle{watch};
  sleeper place;
};

// A thread leaves something as the overseer goes to rest; it calls it if it sees that it
// is alone.
struct leaver {
  oversight by;
  std::atomic<bool> is_left{false};
  bool is_at_rest = false;

  leaver() {
    by.begin();
    by.call();
  }

  void leaves() {
    is_left.store(true);         // OV1
    if (!by.looks()) by.call();  // OV2
  }

  void goes_to_rest() {
    by.clear();
    is_at_rest = by.rests([&] { return !is_left.load(); });  // OV3, OV4
    by.sleep_until(is_at_rest ? never : 0);                  // OV5
  }
};

}  // namespace

TEST_CASE("oversight: what is left as the overseer goes to rest is seen, or rings") {
  prove(
      "oversight: something is left as it goes to rest",
      [] {
        auto s = std::make_unique<leaver>();
        std::thread overseer([&] { s->goes_to_rest(); });  // returns: it has rung, if it rests
        s->leaves();
        overseer.join();
        model::require(s->by.looks(), "it looks");
      },
      also::unbounded);
}

TEST_CASE("oversight: a worker that gets up as the overseer goes to rest is attended to") {
  prove(
      "oversight: one gets up as all have slept",
      [] {
        auto s = std::make_unique<watched>();
        bool rests = false;
        std::thread looks([&] {
          s->idle.overseen.clear();
          rests = s->idle.overseen.attends_no_more([&] { return s->idle.asleep() == 1; });
          s->idle.overseen.sleep_until(rests ? never : 0);
        });
        s->idle.stay_awake(s->place);
        looks.join();
        model::require(s->idle.overseen.attends(), "it attends");
        s->idle.stop_looking();
      },
      also::unbounded);
}
