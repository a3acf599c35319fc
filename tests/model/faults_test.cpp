// Proofs for planted faults (faults/) that no other test here covers.
#include "core/sched/queue/run_queue.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::detail::fiber;
using vigil::detail::run_queue;

TEST_CASE("faults: a thief takes no place that has not been filled") {
  prove(
      "faults: push against grab",
      [] {
        const auto q = std::make_unique<run_queue>();
        const auto item = std::make_unique<int>(0);
        std::thread thief([&] {
          fiber* into[1] = {};
          if (q->grab(into, 1) == 1) {
            model::require(into[0] == reinterpret_cast<fiber*>(item.get()), "the fiber is there");
          }
        });
        q->push(*reinterpret_cast<fiber*>(item.get()));
        thief.join();
      },
      also::unbounded);
}

TEST_CASE("faults: a dead entry does not take a periodic timer from its runner") {
  prove("faults: every, a dead entry comes due in a run", [] {
    vigil::options o;
    o.workers = 2;
    o.dump_on_sigquit = false;
    o.stuck_limit = 0s;
    vigil::run(o, [] {
      vigil::spawn([] {
        std::atomic<int> runs{0};
        std::atomic<bool> inside{false};
        std::atomic<bool> passed{false};
        vigil::timer every = vigil::every(4ms, [&] {
          model::require(!inside.exchange(true), "no two runs overlap");
          if (runs.fetch_add(1) == 0) {
            const model::window w;
            model::advance(6'000'000);
            model::wait_until([&] { return passed.load(); });
          }
          inside.store(false);
        });
        vigil::after_func(5ms, [&] { passed.store(true); });
        vigil::sleep_for(1ms);   // the entry is in the heap
        every.reset(1ms);        // and dead from now on; the deputy sleeps until its time
        vigil::sleep_for(20ms);  // leaves this worker to the timers
        every.stop_and_wait();
      }).join();
    });
  });
}
