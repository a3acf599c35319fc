// Naps: anything that comes while a worker naps is found at the latest after the nap.
#include "base/clock_source.hpp"
#include "programs.hpp"
#include "prove.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/scheduler.hpp"

#include <vigil/vigil.hpp>

#include <atomic>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::detail::monotonic_now;
using vigil::detail::nanos;

using programs::moment;
using programs::strict_workers;
using programs::when_others_sleep;

namespace {

// Caller: the main fiber, the only one awake.
void nap_soon() {
  auto& sched = *vigil::detail::current_scheduler();
  sched.naps.after.store(0);
  sched.naps.in_a_row.store(1);
}

// The main fiber's worker stays awake; the other one naps whenever it may.
template <class F>
void when_the_other_naps(F&& body) {
  when_others_sleep(2, [&](vigil::runtime&) {
    nap_soon();
    const model::window w;
    body();
  });
}

void wait_for(std::atomic<int>& count, int n) {
  model::wait_until([&] { return count.load() == n; });
}

}  // namespace

TEST_CASE("idle: a fiber handed over beside a napping worker runs, at the latest after the nap") {
  prove("nap: 2 fibers in turn beside a computing one", [] {
    when_the_other_naps([] {
      std::atomic<int> ran{0};
      for (int i = 1; i <= 2; ++i) {
        vigil::go([&] { ran.fetch_add(1); });
        wait_for(ran, i);
      }
    });
  });
}

TEST_CASE("idle: two pieces of work rouse a napping worker") {
  prove("nap: a burst of 2 fibers beside a computing one", [] {
    when_the_other_naps([] {
      std::atomic<int> ran{0};
      vigil::go([&] { ran.fetch_add(1); });
      wait_for(ran, 1);
      vigil::go([&] { ran.fetch_add(1); });
      vigil::go([&] { ran.fetch_add(1); });
      wait_for(ran, 3);
    });
  });
}

TEST_CASE("idle: a deadline before the end of a nap rouses the napping worker") {
  prove("nap: a timer of 10 us by a busy worker", [] {
    when_the_other_naps([] {
      std::atomic<int> ran{0};
      vigil::go([&] { ran.fetch_add(1); });
      wait_for(ran, 1);
      moment armed;
      const nanos deadline = model::now() + 10'000;
      const vigil::timer t = vigil::after_func(10us, [&] {
        const nanos now = monotonic_now();
        model::require(now == deadline || armed.when() >= deadline, "in time");
        ran.fetch_add(1);
      });
      armed.comes();
      wait_for(ran, 2);
    });
  });
}

TEST_CASE("idle: a run ends while a worker naps") {
  prove("nap: the run ends", [] {
    vigil::run(strict_workers(2), [] {
      vigil::sleep_for(1ms);
      nap_soon();
      const model::window w;
      vigil::go([] {});
    });
  });
}
