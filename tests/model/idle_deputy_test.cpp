// Watcher and deputy (P7): the second deadline is kept while the worker that woke for the
// first is busy.
#include "core/base/clock_source.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::detail::monotonic_now;
using vigil::detail::nanos;
using vigil::detail::never;

using programs::busy_until;
using programs::moment;
using programs::turnstile;
using programs::when_others_sleep;

namespace {

// The main fiber calls `begin` and waits. When both workers sleep, a plain thread calls
// `meanwhile` in a window that ends when `fired` is set. So the first timer wakes a
// worker inside the window, and that worker is busy until the window has ended: only the
// other worker can set `fired`.
class both_asleep {
 public:
  template <class Begin, class Meanwhile>
  static void run(Begin&& begin, Meanwhile&& meanwhile) {
    when_others_sleep(2, [&](vigil::runtime& under_test) {
      both_asleep t(under_test);
      begin(t);
      std::thread observer([&] {
        const auto& idle = t.sched_.idle();
        model::wait_until([&] { return idle.asleep() == 2; });
        {
          const model::window w;
          meanwhile(t);
          busy_until(t.fired);
        }
        t.window_ended_.store(true);
      });
      t.main_.wait();
      observer.join();
    });
  }

  // Called by the fiber for which the watcher wakes.
  void stay_busy() {
    busy_until(window_ended_);
    main_.open();
  }

  vigil::runtime& rt;
  std::atomic<bool> fired{false};

 private:
  explicit both_asleep(vigil::runtime& r) : rt(r), sched_(*vigil::detail::current_fiber()->sched) {}

  vigil::detail::scheduler& sched_;
  turnstile main_;
  std::atomic<bool> window_ended_{false};
};

}  // namespace

TEST_CASE("idle: the deputy fires the second timer while the first one's callback is busy") {
  prove("P7: 2 timers, the first one's callback is busy", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::after_func(1ms, [&] { t.stay_busy(); });
          vigil::after_func(2ms, [&] { t.fired.store(true); });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a sleeper's deadline is kept while the fiber that slept less is busy") {
  prove("P7: 2 sleepers, the first is busy", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::go([&] {
            vigil::sleep_for(1ms);
            t.stay_busy();
          });
          vigil::go([&] {
            vigil::sleep_for(2ms);
            t.fired.store(true);
          });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a timer that the busy callback has armed is kept by the other worker") {
  prove("P7: a busy callback arms the next timer", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::after_func(1ms, [&] {
            vigil::after_func(1ms, [&] { t.fired.store(true); });
            t.stay_busy();
          });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a sleep that begins beside a busy fiber is kept by the other worker") {
  prove("P7: a fiber parks to the next deadline, then its worker is busy", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::go([&] {
            vigil::sleep_for(1ms);
            // Runs next on this worker, which owes the cover of the sleep.
            vigil::go([&] { t.stay_busy(); });
            vigil::sleep_for(1ms);
            t.fired.store(true);
          });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a sleep whose worker goes on with another fiber is kept by the other worker") {
  prove("P7: a fiber parks to the next deadline, its worker has a pinned one", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      const vigil::this_fiber::pin stays;
      const auto& sched = *vigil::detail::current_fiber()->sched;
      std::optional<turnstile> other;
      auto pinned = vigil::spawn([&] {
        const vigil::this_fiber::pin here;
        other.emplace();
        other->wait();
        // Only the other worker can fire it now.
        model::wait_until([&] { return sched.board.next_deadline.load() == never; });
      });
      vigil::sleep_for(1ms);
      const model::window w;
      other->open();  // wakes no worker: it waits for this one
      vigil::sleep_for(1ms);
      pinned.join();
    });
  });
}

TEST_CASE("idle: a timer armed from outside as the watcher wakes is kept by the other worker") {
  prove("P7: a plain thread arms the next timer as the watcher wakes", [] {
    both_asleep::run([](both_asleep& t) { vigil::after_func(1ms, [&] { t.stay_busy(); }); },
                     [](both_asleep& t) { t.rt.after_func(2ms, [&] { t.fired.store(true); }); });
  });
}

TEST_CASE("idle: a deputy that sleeps to a later deadline is given the earlier one") {
  prove("P7: the deputy is retargeted", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      turnstile main;
      std::atomic<bool> fired{false};
      moment armed;
      const nanos second = model::now() + 2'000'000;
      vigil::after_func(1ms, [&] {
        {
          const model::window w;
          vigil::after_func(1ms, [&] {
            // The other worker does not sleep beyond this deadline, once armed.
            const nanos now = monotonic_now();
            model::require(now == second || armed.when() >= second, "the deputy is in time");
            fired.store(true);
          });
          armed.comes();
          busy_until(fired);
        }
        main.open();
      });
      vigil::timer third = vigil::after_func(3ms, [] {});
      main.wait();
      third.stop();
    });
  });
}
