// The heap before a worker sleeps: idler::leaves_dead_ones().
#include "core/runtime/runtime_core.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::testing_support::in_runtime;
using vigil::testing_support::is_at_rest_for_good;

TEST_SUITE("tidy") {
  TEST_CASE("a lone worker does not sleep to a deadline of a wait that is over") {
    in_runtime({.workers = {1}}, [](vigil::runtime& rt) {
      vigil::detail::scheduler& sched = vigil::detail::runtime_access::core_of(rt).sched;
      const auto values = vigil::make_channel<int>();
      constexpr int waits = 500;
      bool rested = false;
      const auto announced = rt.make_work_guard();
      std::thread other([&] {
        for (int i = 0; i < waits; ++i)
          values.send(i);
        // Far longer than it takes: the limit is for a worker that sleeps for an hour.
        const auto until = vigil::clock::now() + 20s;
        while (!rested && vigil::clock::now() < until) {
          rested = is_at_rest_for_good(sched);
          std::this_thread::yield();
        }
        values.send(waits);
      });
      for (int i = 0; i < waits; ++i)
        CHECK(values.recv_for(1h).value() == i);
      CHECK(values.recv().value() == waits);
      other.join();
      CHECK(rested);
    });
  }

  TEST_CASE("a lone worker tidies all of the heap before it sleeps") {
    in_runtime({.workers = {1}}, [](vigil::runtime& rt) {
      vigil::detail::scheduler& sched = vigil::detail::runtime_access::core_of(rt).sched;
      std::vector<vigil::timer> timers;
      for (int i = 0; i < 20'000; ++i)
        timers.push_back(vigil::after_func(1h, [] {}));
      const auto over = vigil::make_channel<void>();
      const auto announced = rt.make_work_guard();
      const auto before = vigil::stats().kernel_waits;
      for (vigil::timer& t : timers)
        t.stop();
      std::thread other([&] {
        const auto until = vigil::clock::now() + 20s;
        while (!is_at_rest_for_good(sched) && vigil::clock::now() < until)
          std::this_thread::yield();
        over.close();
      });
      over.recv();
      other.join();
      CHECK(vigil::stats().kernel_waits - before < 20);
    });
  }
}
