// How the end of a run is recognised: outside work and deadlock. Whole programs on real
// workers.
#include "core/runtime/runtime_core.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "programs.hpp"
#include "prove.hpp"

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

using programs::for_ever;
using programs::long_window;
using programs::reports_deadlock;
using programs::run_without_deadlock;
using programs::strict_workers;
using programs::turnstile;

namespace {

// Suppresses the deadlock's dump, which would be written in each interleaving.
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

// The main fiber waits until `opens`, on a plain thread that then ends its outside work,
// has brought about that its turnstile is opened. Other workers sleep when it begins.
template <class F>
void readied_from_outside(unsigned workers, F opens) {
  vigil::runtime rt(strict_workers(workers));
  vigil::work_guard guard = rt.make_work_guard();
  run_without_deadlock(rt, [&] {
    turnstile main;
    if (workers > 1) vigil::sleep_for(1ms);
    const model::window w;
    std::thread outside([&] {
      opens(rt, main);
      guard.release();
    });
    main.wait();
    outside.join();
  });
}

// By a fiber.
constexpr auto go_to = [](vigil::runtime& rt, turnstile& main) { rt.go([&] { main.open(); }); };

}  // namespace

// --- outside work

TEST_CASE("end: outside work that ends without a trace leaves a deadlock, and it is reported") {
  const no_standard_error quiet;
  prove("end: work guard released, 1 worker: a deadlock", [] {
    vigil::runtime rt(strict_workers(1));
    vigil::work_guard guard = rt.make_work_guard();
    std::thread outside;
    long_window w;
    const bool reported = reports_deadlock(rt, [&] {
      w.emplace();
      outside = std::thread([&] { guard.release(); });
      vigil::sleep_for(for_ever);
    });
    w.reset();
    outside.join();
    model::require(reported, "the deadlock is reported");
  });
}

TEST_CASE("end: no deadlock is reported that outside work has just ended") {
  const no_standard_error quiet;
  prove("end: a fiber from outside, then the guard released, 1 worker",
        [] { readied_from_outside(1, go_to); });
}

TEST_CASE("end: the last of two workers to lie down reports no false deadlock") {
  const no_standard_error quiet;
  prove("end: a fiber from outside, then the guard released, 2 workers",
        [] { readied_from_outside(2, go_to); });
}

TEST_CASE("end: two runtimes that wake each other report no deadlock") {
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

TEST_CASE("end: the first of two runtimes to get stuck hears of it as well") {
  const no_standard_error quiet;
  prove("end: two runtimes are stuck, the first to begin ends by it", [] {
    vigil::runtime one(strict_workers(1));
    vigil::options waits_on = programs::workers(1);
    waits_on.deadlock = vigil::on_deadlock::warn;
    vigil::runtime other(waits_on);
    std::optional<vigil::work_guard> guard(one.make_work_guard());
    std::thread second;
    std::atomic<turnstile*> in_other{nullptr};
    const bool reported = reports_deadlock(one, [&] {
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

TEST_CASE("end: a timer armed from outside is not a deadlock") {
  const no_standard_error quiet;
  prove("end: a timer from outside, then the guard released, 1 worker", [] {
    readied_from_outside(
        1, [](vigil::runtime& rt, turnstile& main) { rt.after_func(1ms, [&] { main.open(); }); });
  });
}

namespace {

// A runtime on virtual time, whose main fiber and another one wait until a plain thread
// has readied one of them, which then ends its outside work.
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
  run_without_deadlock(core.sched, body);
}

}  // namespace

TEST_CASE("end: virtual time does not jump past a fiber that outside work has just readied") {
  const no_standard_error quiet;
  for (const bool readies_main : {true, false}) {
    prove(readies_main ? "end: virtual time, the main fiber readied from outside, a timer pending"
                       : "end: virtual time, a fiber readied from outside, a timer pending",
          [=] { on_virtual_time(readies_main, [] { vigil::after_func(1h, [] {}); }); });
  }
}

TEST_CASE("end: on virtual time no deadlock is reported that outside work has just ended") {
  const no_standard_error quiet;
  for (const bool readies_main : {true, false}) {
    prove(readies_main ? "end: virtual time, the main fiber readied from outside"
                       : "end: virtual time, a fiber readied from outside",
          [=] { on_virtual_time(readies_main, [] {}); });
  }
}
