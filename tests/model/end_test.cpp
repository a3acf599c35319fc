// How a run ends, and what is found to be its end: outside work, deadlock,
// shutdown. Whole programs on real workers.
#include "programs.hpp"
#include "prove.hpp"
#include "runtime/runtime_core.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/fiber/park.hpp"
#include "sched/scheduler.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

using namespace std::chrono_literals;

using programs::strict_workers;
using programs::turnstile;

namespace {

constexpr auto for_ever = std::chrono::hours::max();

// A window from the middle of a run to its end.
using long_window = std::optional<model::window>;

// The deadlock's dump would be written in each interleaving.
class no_standard_error {
 public:
  no_standard_error() : before_(::dup(2)) {
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, 2);
    ::close(nowhere);
  }

  ~no_standard_error() {
    ::dup2(before_, 2);
    ::close(before_);
  }

  no_standard_error(const no_standard_error&) = delete;
  no_standard_error& operator=(const no_standard_error&) = delete;

 private:
  const int before_;
};

// A run in which a deadlock would be reported falsely.
template <class F>
void run_without_deadlock(vigil::runtime& rt, F&& f) {
  try {
    rt.run(f);
  } catch (const vigil::deadlock&) {
    model::require(false, "no deadlock is reported");
  }
}

// Counts lives: each of what it counts must end once.
struct counted {
  explicit counted(std::atomic<int>& n) : alive(&n) { alive->fetch_add(1); }

  counted(counted&& other) noexcept : alive(std::exchange(other.alive, nullptr)) {}

  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;

  ~counted() {
    if (alive != nullptr) alive->fetch_sub(1);
  }

  std::atomic<int>* alive;
};

}  // namespace

// --- outside work

TEST_CASE("end: outside work that ends without a trace leaves a deadlock, and it is reported") {
  const no_standard_error quiet;
  prove("end: work guard released, 1 worker: a deadlock", [] {
    vigil::runtime rt(strict_workers(1));
    vigil::work_guard guard = rt.make_work_guard();
    std::thread outside;
    long_window w;
    bool reported = false;
    try {
      rt.run([&] {
        w.emplace();
        outside = std::thread([&] { guard.release(); });
        vigil::sleep_for(for_ever);
      });
    } catch (const vigil::deadlock&) {
      reported = true;
    }
    w.reset();
    outside.join();
    model::require(reported, "the deadlock is reported");
  });
}

TEST_CASE("end: no deadlock is reported that outside work has just undone") {
  const no_standard_error quiet;
  prove("end: a fiber from outside, then the guard released, 1 worker", [] {
    vigil::runtime rt(strict_workers(1));
    vigil::work_guard guard = rt.make_work_guard();
    run_without_deadlock(rt, [&] {
      turnstile main;
      const model::window w;
      std::thread outside([&] {
        rt.go([&] { main.open(); });
        guard.release();
      });
      main.wait();
      outside.join();
    });
  });
}

TEST_CASE("end: of two workers the last to lie down reports no deadlock falsely") {
  const no_standard_error quiet;
  prove("end: a fiber from outside, then the guard released, 2 workers", [] {
    vigil::runtime rt(strict_workers(2));
    vigil::work_guard guard = rt.make_work_guard();
    run_without_deadlock(rt, [&] {
      turnstile main;
      vigil::sleep_for(1ms);
      const model::window w;
      std::thread outside([&] {
        rt.go([&] { main.open(); });
        guard.release();
      });
      main.wait();
      outside.join();
    });
  });
}

TEST_CASE("end: of two runtimes that wake each other none reports a deadlock") {
  const no_standard_error quiet;
  prove("end: two runtimes, each wakes the other", [] {
    vigil::runtime one(strict_workers(1));
    vigil::runtime other(strict_workers(1));
    std::optional<vigil::work_guard> guard(one.make_work_guard());
    std::thread second;
    std::atomic<turnstile*> in_one{nullptr};
    std::atomic<turnstile*> in_other{nullptr};
    run_without_deadlock(one, [&] {
      turnstile here;
      in_one.store(&here);
      second = std::thread([&] {
        run_without_deadlock(other, [&] {
          turnstile there;
          in_other.store(&there);
          const model::window w;
          guard.reset();
          in_one.load()->open();
          there.wait();
        });
      });
      here.wait();
      in_other.load()->open();
    });
    second.join();
  });
}

TEST_CASE("end: of two runtimes that are stuck the one that is so first hears of it as well") {
  const no_standard_error quiet;
  prove("end: two runtimes are stuck, the first to begin ends by it", [] {
    vigil::runtime one(strict_workers(1));
    vigil::options waits_on = programs::workers(1);
    waits_on.deadlock = vigil::on_deadlock::warn;
    vigil::runtime other(waits_on);
    std::optional<vigil::work_guard> guard(one.make_work_guard());
    std::thread second;
    std::atomic<turnstile*> in_other{nullptr};
    bool reported = false;
    try {
      one.run([&] {
        second = std::thread([&] {
          other.run([&] {
            turnstile there;
            in_other.store(&there);
            const model::window w;
            guard.reset();
            there.wait();
          });
        });

        struct opener {
          std::atomic<turnstile*>* who;

          ~opener() { who->load()->open(); }
        } const at_end{&in_other};

        vigil::sleep_for(for_ever);
      });
    } catch (const vigil::deadlock&) {
      reported = true;
    }
    second.join();
    model::require(reported, "the deadlock is reported");
  });
}

TEST_CASE("end: a plain thread may hand over the value that ends the run, and the runtime") {
  for (const int n : {1, 2}) {
    prove(n == 1 ? "end: the last value from a plain thread, 1 worker"
                 : "end: the last value from a plain thread, 2 workers",
          [n] {
            const auto c = vigil::make_channel<int>();
            std::thread last;
            long_window w;
            {
              vigil::runtime rt(strict_workers(n));
              const vigil::work_guard guard = rt.make_work_guard();
              rt.run([&] {
                w.emplace();
                last = std::thread([c] { c.send(1); });
                static_cast<void>(c.recv());
              });
            }
            w.reset();
            last.join();
          });
  }
}

TEST_CASE("end: a timer armed from outside is no deadlock") {
  const no_standard_error quiet;
  prove("end: a timer from outside, then the guard released, 1 worker", [] {
    vigil::runtime rt(strict_workers(1));
    vigil::work_guard guard = rt.make_work_guard();
    run_without_deadlock(rt, [&] {
      turnstile main;
      const model::window w;
      std::thread outside([&] {
        rt.after_func(1ms, [&] { main.open(); });
        guard.release();
      });
      main.wait();
      outside.join();
    });
  });
}

namespace {

// A runtime on virtual time, whose main fiber and another wait until a plain
// thread has readied one of them, which then ends its outside work.
template <class F>
void on_virtual_time(bool readies_main, F&& before_waiting) {
  vigil::detail::scheduler_options o;
  o.workers = 1;
  o.virtual_time = true;
  o.dump_on_sigquit = false;
  o.deadlock = vigil::on_deadlock::fatal;
  vigil::detail::runtime_core core(o);
  core.sched.outside.add();
  auto body = [&] {
    before_waiting();
    turnstile main;
    turnstile* opened = &main;
    vigil::go([&] {
      turnstile other;
      opened = readies_main ? &main : &other;
      if (!readies_main) {
        other.wait();
        main.open();
      }
    });
    vigil::this_fiber::yield();
    const auto begin = vigil::clock::now();
    const model::window w;
    std::thread outside([&] {
      opened->open();
      core.sched.outside.end();
    });
    main.wait();
    model::require(vigil::clock::now() == begin, "time stands still while a fiber can run");
    outside.join();
  };
  try {
    core.sched.run(body, false);
  } catch (const vigil::deadlock&) {
    model::require(false, "no deadlock is reported");
  }
}

}  // namespace

TEST_CASE("end: virtual time does not jump past what outside work has just readied") {
  const no_standard_error quiet;
  for (const bool readies_main : {true, false}) {
    prove(readies_main ? "end: virtual time, the main fiber readied from outside, a timer pending"
                       : "end: virtual time, a fiber readied from outside, a timer pending",
          [=] { on_virtual_time(readies_main, [] { vigil::after_func(1h, [] {}); }); });
  }
}

TEST_CASE("end: on virtual time no deadlock is reported that outside work has just undone") {
  const no_standard_error quiet;
  for (const bool readies_main : {true, false}) {
    prove(readies_main ? "end: virtual time, the main fiber readied from outside"
                       : "end: virtual time, a fiber readied from outside",
          [=] { on_virtual_time(readies_main, [] {}); });
  }
}

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
      vigil::go([&stopped, c = counted(alive)] {
        try {
          vigil::sleep_for(for_ever);
        } catch (const vigil::stopped&) {
          stopped = true;
          throw;
        }
      });
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
      try {
        vigil::sleep_for(for_ever);
      } catch (const vigil::stopped&) {
        stopped = true;
        throw;
      }
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
    rt.run([&] {
      try {
        vigil::sleep_for(for_ever);
      } catch (const vigil::stopped&) {
        stopped = true;
        throw;
      }
    });
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
        vigil::sleep_for(1ms);  // nobody but the timer fiber ends it
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

TEST_CASE("end: a timer's handle used as its runtime goes does what it says or refuses") {
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
