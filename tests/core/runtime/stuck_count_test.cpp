// options::stuck_limit: the count of looks without a switch, and the things that wait for
// a worker.
#include "core/base/clock_source.hpp"
#include "core/runtime/runtime_test.hpp"
#include "core/sched/overseer/stuck_watch.hpp"
#include "core/sched/worker/ready_work.hpp"

#include <vector>

using namespace vigil::testing_support;
using vigil::detail::nanos;
using vigil::detail::run_bounds;
using vigil::detail::stuck_count;

namespace {

constexpr nanos second = 1'000'000'000;

}  // namespace

TEST_SUITE("stuck") {
  // --- the count, on a clock of its own: a limit of 10 s, a look every half second

  TEST_CASE("the count is complete when a wait has lasted the limit and no worker has switched") {
    stuck_count c(10 * second, second / 2);
    nanos now = 1000 * second;
    for (int i = 0; i < 20; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, false, true));
    CHECK(c.look(now, false, true));
    // It is reported once.
    for (int i = 0; i < 100; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, false, true));
  }

  TEST_CASE("a switch, or a moment in which nobody waits, begins the count anew") {
    stuck_count c(10 * second, second / 2);
    nanos now = 1000 * second;
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 20; ++i, now += second / 2)
        REQUIRE_FALSE(c.look(now, i == 0, true));
    }
    for (int i = 0; i < 200; ++i, now += second / 2)
      REQUIRE_FALSE(c.look(now, false, i % 20 != 0));
  }

  TEST_CASE("a process that stood still for an hour, or for a second at each step, is not stuck") {
    stuck_count c(10 * second, second / 2);
    nanos now = 1000 * second;
    for (int i = 0; i < 19; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, false, true));
    now += 3600 * second;
    // From here on the whole limit has to pass again.
    for (int i = 0; i < 20; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, false, true));
    CHECK(c.look(now, false, true));
    stuck_count steps(10 * second, second / 2);
    for (int i = 0; i < 1000; ++i, now += second + 1)
      REQUIRE_FALSE(steps.look(now, false, true));
  }

  TEST_CASE("the start of a worker's present run lies between two looks at its count") {
    run_bounds b;
    run_bounds::span ran;
    b.begin(5, 100 * second);
    REQUIRE(b.look(5, 103 * second, ran));  // still in the same activity as at the beginning
    CHECK(ran.at_least == 3 * second);
    REQUIRE(b.look(9, 104 * second, ran));
    CHECK(ran.at_least == 0);
    CHECK(ran.at_most == second);
    REQUIRE(b.look(9, 110 * second, ran));
    CHECK(ran.at_least == 6 * second);
    CHECK(ran.at_most == 7 * second);
  }

  // --- things that wait for a worker

  TEST_CASE("a stopped timer is not due, a pending one is, wherever it is stored") {
    in_runtime({.workers = {1}}, [](vigil::runtime& rt) {
      auto& sched = vigil::detail::runtime_access::core_of(rt).sched;
      CHECK_FALSE(vigil::detail::waits_for_a_worker(sched));
      std::vector<vigil::timer> stopped;
      for (int i = 0; i < 1000; ++i)  // some in the heap, some in the intake
        stopped.push_back(vigil::after_func(1us, [] {}));
      for (auto& t : stopped)
        t.stop();
      const nanos later = vigil::detail::monotonic_now() + 3600 * second;
      CHECK_FALSE(sched.timers().anything_due(later));
      CHECK_FALSE(vigil::detail::waits_for_a_worker(sched));
      for (int i = 0; i < 600; ++i)
        stopped[static_cast<std::size_t>(i)].reset(2h);
      CHECK_FALSE(sched.timers().anything_due(later));
      for (const std::size_t which : {999u, 0u, 500u}) {
        stopped[which].reset(30min);
        CHECK(sched.timers().anything_due(later));
        for (int i = 0; i < 300; ++i)  // pushes it out of the intake
          vigil::after_func(3h, [] {}).stop();
        CHECK(sched.timers().anything_due(later));
        stopped[which].stop();
        CHECK_FALSE(sched.timers().anything_due(later));
      }
      CHECK_FALSE(vigil::detail::waits_for_a_worker(sched));
      for (auto& t : stopped)
        t.stop();
    });
  }

  TEST_CASE("a fiber that is ready waits, one that runs does not") {
    in_runtime({.workers = {1}}, [](vigil::runtime& rt) {
      auto& sched = vigil::detail::runtime_access::core_of(rt).sched;
      CHECK_FALSE(vigil::detail::waits_for_a_worker(sched));
      auto f = vigil::spawn([&] { CHECK_FALSE(vigil::detail::waits_for_a_worker(sched)); });
      CHECK(vigil::detail::waits_for_a_worker(sched));
      f.join();
      auto t = vigil::after_func(1ns, [] {});
      const auto from = vigil::clock::now();
      while (since(from) < 1us) {
      }
      CHECK(vigil::detail::waits_for_a_worker(sched));
      while (vigil::stats().timers_fired == 0)
        vigil::sleep_for(1us);
    });
  }
}
