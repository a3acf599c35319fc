// Sleeping and waking in whole programs, on two or three workers.
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

using programs::busy_until;
using programs::moment;
using programs::strict_workers;
using programs::turnstile;
using programs::when_others_sleep;

TEST_CASE("idle: a fiber that a plain thread starts runs, whichever worker lies down") {
  prove("idle: go from a plain thread, both lie down", [] {
    when_others_sleep(2, [](vigil::runtime& rt) {
      turnstile main;
      const model::window w;
      std::thread outside([&] { rt.go([&] { main.open(); }); });
      main.wait();
      outside.join();
    });
  });
}

TEST_CASE("idle: a fiber started while the other worker lies down runs there") {
  prove("idle: go while the other worker lies down", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<int> ran{0};
      const model::window w;
      for (int i = 1; i <= 2; ++i) {
        vigil::go([&] { ran.fetch_add(1); });
        model::wait_until([&] { return ran.load() == i; });
      }
    });
  });
}

TEST_CASE("idle: each fiber of a burst has a worker") {
  prove("idle: a burst of 2 fibers, 2 workers", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<int> running{0};
      const auto busy = [&] {
        running.fetch_add(1);
        model::wait_until([&] { return running.load() == 2; });
      };
      const model::window w;
      auto first = vigil::spawn(busy);
      auto second = vigil::spawn(busy);
      first.join();
      second.join();
    });
  });
}

TEST_CASE("idle: a burst by a busy worker wakes worker after worker") {
  prove("idle: a burst of 2 fibers by a busy worker, 3 workers", [] {
    when_others_sleep(3, [](vigil::runtime&) {
      std::atomic<int> running{0};
      const auto busy = [&] {
        running.fetch_add(1);
        model::wait_until([&] { return running.load() == 2; });
      };
      vigil::fiber<> first;
      vigil::fiber<> second;
      {
        const model::window w;
        first = vigil::spawn(busy);
        second = vigil::spawn(busy);
        model::wait_until([&] { return running.load() == 2; });
      }
      first.join();
      second.join();
    });
  });
}

TEST_CASE("idle: a timer that a plain thread arms fires, whichever worker lies down") {
  prove("idle: a timer from a plain thread, both lie down", [] {
    when_others_sleep(2, [](vigil::runtime& rt) {
      turnstile main;
      std::optional<model::window> w;
      w.emplace();
      std::thread outside([&] {
        rt.after_func(1ms, [&] {
          w.reset();
          main.open();
        });
      });
      main.wait();
      outside.join();
    });
  });
}

TEST_CASE("idle: a timer that a busy worker arms fires on the other, which lies down") {
  prove("idle: timers of a busy worker, the other lies down", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<int> fired{0};
      const model::window w;
      for (int i = 1; i <= 2; ++i) {
        const auto deadline = vigil::deadline_in(1ms);
        const vigil::timer t = vigil::after_func(1ms, [&] { fired.fetch_add(1); });
        model::wait_until([&] { return fired.load() == i; });
        model::require(vigil::clock::now() == deadline, "in time: nothing else moves the clock");
      }
    });
  });
}

TEST_CASE("idle: a worker that sleeps to a deadline is moved to an earlier one") {
  prove("idle: a plain thread arms an earlier timer, 1 worker sleeps", [] {
    when_others_sleep(2, [](vigil::runtime& rt) {
      std::atomic<bool> fired{false};
      std::atomic<bool> over{false};
      auto& current = *vigil::detail::current_fiber()->sched;
      moment armed;
      const nanos deadline = model::now() + 1'000'000;
      vigil::timer later = vigil::after_func(2ms, [] {});
      std::thread outside([&] {
        model::wait_until([&] { return current.idle().earliest() == deadline + 1'000'000; });
        {
          const model::window w;
          rt.after_func(1ms, [&] {
            const nanos now = monotonic_now();
            model::require(now == deadline || armed.when() >= deadline, "in time");
            fired.store(true);
          });
          armed.comes();
          busy_until(fired);
        }
        over.store(true);
      });
      busy_until(over);
      outside.join();
      later.stop();
    });
  });
}

TEST_CASE("idle: main's worker leaves a callback to the worker that comes for it") {
  prove("idle: main sleeps beside a posted function that computes", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<bool> woken{false};
      std::atomic<bool> over{false};
      {
        const model::window w;
        vigil::post([&] {
          busy_until(woken);
          over.store(true);
        });
        vigil::sleep_for(1ms);
        woken.store(true);
      }
      busy_until(over);
    });
  });
}

TEST_CASE("idle: a runner is entered once it is off its stack") {
  prove("idle: a callback that is posted as the runner of another one goes idle", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<bool> first{false};
      const vigil::channel<void> second = vigil::make_channel<void>();
      {
        const model::window w;
        vigil::post([&] { first.store(true); });
        busy_until(first);
        vigil::post([second] { second.close(); });
        second.recv();  // this worker looks for work
      }
    });
  });
}
