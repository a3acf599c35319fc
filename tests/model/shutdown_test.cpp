// How a run ends: the shutdown, and the callbacks and timers that it meets. Whole
// programs on real workers.
#include "core/runtime/runtime_core.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using programs::counted;
using programs::for_ever;
using programs::long_window;
using programs::sleep_until_stopped;
using programs::strict_workers;

// --- the shutdown

TEST_CASE("end: the last fiber ends on another worker while the main fiber waits for it") {
  prove("end: the last fiber ends as the run does", [] {
    std::atomic<int> alive{0};
    bool ran = false;
    long_window w;
    {
      vigil::runtime rt(strict_workers(2));
      rt.run([&] {
        vigil::sleep_for(1ms);
        w.emplace();
        vigil::go([&ran, c = counted(alive)] { ran = true; });
      });
      w.reset();
    }
    model::require(ran && alive.load() == 0, "it has run and ended");
  });
}

TEST_CASE("end: a fiber that is about to wait as the run ends is stopped") {
  prove("end: a fiber parks as the run ends", [] {
    std::atomic<int> alive{0};
    bool stopped = false;
    long_window w;
    vigil::runtime rt(strict_workers(2));
    rt.run([&] {
      vigil::sleep_for(1ms);
      w.emplace();
      vigil::go([&stopped, c = counted(alive)] { sleep_until_stopped(stopped); });
    });
    w.reset();
    model::require(stopped && alive.load() == 0, "it was stopped and has ended");
  });
}

TEST_CASE("end: a stop asked for from outside ends the wait that begins") {
  prove("end: request_stop against a wait that begins", [] {
    bool stopped = false;
    long_window w;
    vigil::runtime rt(strict_workers(1));
    const vigil::work_guard guard = rt.make_work_guard();
    std::thread outside;
    rt.run([&] {
      w.emplace();
      outside = std::thread([&] { rt.request_stop(); });
      sleep_until_stopped(stopped);
    });
    w.reset();
    outside.join();
    model::require(stopped, "the wait has ended by the stop");
  });
}

TEST_CASE("end: a fiber asked to stop from outside ends its wait") {
  prove("end: a fiber's request_stop against a wait that begins", [] {
    bool stopped = false;
    vigil::runtime rt(strict_workers(2));
    const vigil::work_guard guard = rt.make_work_guard();
    rt.run([&] {
      vigil::sleep_for(1ms);
      const model::window w;
      auto f = vigil::spawn([&] {
        try {
          vigil::sleep_for(for_ever);
        } catch (const vigil::stopped&) {
          stopped = true;
        }
      });
      std::thread outside([&] { f.request_stop(); });
      outside.join();
      f.join();
    });
    model::require(stopped, "the wait has ended by the stop");
  });
}

TEST_CASE("end: a stop asked for as the run begins ends it") {
  prove("end: request_stop as the run begins", [] {
    bool stopped = false;
    vigil::runtime rt(strict_workers(1));
    const vigil::work_guard guard = rt.make_work_guard();
    long_window w;
    w.emplace();
    std::thread outside([&] { rt.request_stop(); });
    rt.run([&] { sleep_until_stopped(stopped); });
    w.reset();
    outside.join();
    model::require(stopped, "the wait has ended by the stop");
  });
}

TEST_CASE("end: a stop that comes as the run ends stops that run or the next, and no third") {
  prove("end: request_stop as the run ends, then another run", [] {
    vigil::runtime rt(strict_workers(1));
    long_window w;
    std::thread outside;
    rt.run([&] {
      w.emplace();
      outside = std::thread([&] { rt.request_stop(); });
    });
    w.reset();
    outside.join();
    rt.run([] { vigil::sleep_for(1ms); });
    bool whole = false;
    rt.run([&] {
      vigil::sleep_for(1ms);
      whole = true;
    });
    model::require(whole, "the third run is not stopped");
  });
}

TEST_CASE("end: a fiber started from outside as the run ends runs, now or later, or is refused") {
  prove("end: go from a plain thread as the run ends", [] {
    std::atomic<int> alive{0};
    std::atomic<bool> begun{false};
    bool refused = false;
    {
      vigil::runtime rt(strict_workers(1));
      long_window w;
      std::thread outside;
      rt.run([&] {
        w.emplace();
        outside = std::thread([&] {
          try {
            rt.go([&begun, c = counted(alive)] {
              begun.store(true);
              const vigil::this_fiber::shield whole;
              vigil::sleep_for(1ms);
            });
          } catch (const vigil::runtime_gone&) {
            refused = true;
          }
        });
      });
      model::require(!begun.load() || alive.load() == 0, "run() returns with no fiber alive");
      w.reset();
      outside.join();
      rt.run([] { vigil::sleep_for(2ms); });
    }
    model::require(begun.load() != refused, "either it has run or it was refused");
    model::require(alive.load() == 0, "nothing of it is left");
  });
}

// --- callbacks and timers at the end

TEST_CASE("end: a callback that is due as the run ends runs or is discarded") {
  prove("end: a due callback as the run ends", [] {
    std::atomic<int> alive{0};
    long_window w;
    vigil::runtime rt(strict_workers(2));
    rt.run([&] {
      vigil::sleep_for(1ms);
      w.emplace();
      vigil::after_func(0ms, [c = counted(alive)] {
        const vigil::this_fiber::shield whole;
        vigil::sleep_for(1ms);  // only the timer fiber ends it
      });
    });
    w.reset();
    model::require(alive.load() == 0, "its captures have ended");
  });
}

TEST_CASE("end: a timer that fires as the run ends runs its callback or discards it") {
  prove("end: a timer fires as the run ends", [] {
    std::atomic<int> alive{0};
    long_window w;
    vigil::runtime rt(strict_workers(2));
    rt.run([&] {
      vigil::after_func(1ms, [c = counted(alive)] {});
      const auto& idle = vigil::detail::current_fiber()->sched->idle();
      model::wait_until([&] { return idle.asleep() == 1; });
      w.emplace();
    });
    w.reset();
    model::require(alive.load() == 0, "its captures have ended");
  });
}

TEST_CASE("end: a timer's handle used as its runtime goes keeps its contract or refuses") {
  prove("end: reset from a plain thread as the runtime goes", [] {
    std::atomic<int> alive{0};
    vigil::timer t;
    {
      auto rt = std::make_unique<vigil::runtime>(strict_workers(1));
      rt->run([&] { t = vigil::after_func(1h, [c = counted(alive)] {}); });
      const model::window w;
      std::thread outside([&] {
        try {
          t.reset(2h);
        } catch (const vigil::runtime_gone&) {
          model::note_outcome("refused");
          return;
        }
        model::note_outcome("armed");
      });
      rt.reset();
      outside.join();
    }
    model::require(!t.stop(), "nothing is pending without a runtime");
    t = vigil::timer();
    model::require(alive.load() == 0, "its captures have ended");
  });
  expect_outcomes({"armed", "refused"});
}

TEST_CASE("end: a timer stopped as the run ends has its captures destroyed once") {
  prove("end: stop from a plain thread as the run ends", [] {
    std::atomic<int> alive{0};
    {
      vigil::timer t;
      vigil::runtime rt(strict_workers(1));
      long_window w;
      std::thread outside;
      rt.run([&] {
        t = vigil::after_func(1h, [c = counted(alive)] {});
        w.emplace();
        outside = std::thread([&] { t.stop(); });
      });
      outside.join();
      w.reset();
      model::require(!t.stop(), "nothing is pending any more");
    }
    model::require(alive.load() == 0, "its captures have ended");
  });
}
