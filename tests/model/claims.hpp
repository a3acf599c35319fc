// Timers whose armings several parties claim at once.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/timer/timer_service.hpp"
#include "instants.hpp"
#include "programs.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <thread>

#include <doctest/doctest.h>

namespace programs::claims {

using namespace std::chrono_literals;
using programs::far;
using programs::gate;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::near;
using programs::nearer;
using programs::run_with_outside_work;
using programs::workers;
using vigil::detail::nanos;

// Makes room in the shared intake, so that arming from a plain thread later is as short
// as it can be.
inline void arm_once_from_outside(const vigil::timer& t) {
  std::thread([copy = t]() mutable {
    copy.reset(1h);
    copy.stop();
  }).join();
}

// The times at which the callback ran.
class runs {
 public:
  void note() {
    const int n = begun_.fetch_add(1, std::memory_order_relaxed);
    if (n < 4) at_[n].store(model::now(), std::memory_order_relaxed);
    count_.fetch_add(1);
  }

  int count() const { return count_.load(); }

  nanos at(int n) const { return at_[n].load(std::memory_order_relaxed); }

  void await(int n) const {
    model::wait_until([&] { return count() >= n; });
  }

 private:
  std::atomic<int> begun_{0};
  std::atomic<int> count_{0};
  std::atomic<nanos> at_[4] = {};
};

// An action on the timer.
struct action {
  enum class kind { nothing, stop, reset };
  kind what;
  nanos to = 0;
};

inline constexpr action nothing{action::kind::nothing};
inline constexpr action stop{action::kind::stop};

constexpr action reset(nanos to) {
  return {action::kind::reset, to};
}

// Returns whether it prevented a run.
inline bool act(vigil::timer& t, const action& a) {
  switch (a.what) {
    case action::kind::nothing:
      return false;
    case action::kind::stop:
      return t.stop();
    case action::kind::reset:
      return t.reset(std::chrono::nanoseconds(a.to));
  }
  return false;
}

// One arming that may come due at any moment, an action of the main fiber, and one of a
// plain thread at the same time.
struct contest {
  bool queued = false;  // the callback is due already, and waits for a worker
  nanos deadline = near;
  action here = nothing;
  action outside = nothing;

  void operator()() const {
    run_with_outside_work(2, [this] { play(); });
  }

  void play() const {
    runs r;
    gate busy;
    const nanos begin = model::now();
    auto t =
        vigil::after_func(std::chrono::nanoseconds(queued ? far : deadline), [&] { r.note(); });
    if (outside.what != action::kind::nothing) arm_once_from_outside(t);
    if (queued) {
      vigil::go([&] { busy.enter(); });
      busy.await();
      t.reset(0s);
      model::advance(1);  // what is due now was not yet due then
    } else {
      t.reset(std::chrono::nanoseconds(deadline));
      let_the_other_rest();
    }
    bool prevented_here = false;
    bool prevented_outside = false;
    nanos in_force = INT64_MAX;
    {
      const model::window w;
      busy.open();
      if (outside.what == action::kind::nothing) {
        prevented_here = act(t, here);
      } else {
        std::thread thread([&] { prevented_outside = act(t, outside); });
        prevented_here = act(t, here);
        thread.join();
      }
      in_force = t.deadline().time_since_epoch().count();
      let_time_pass();
    }
    const int armings = 1 + (here.what == action::kind::reset ? 1 : 0) +
                        (outside.what == action::kind::reset ? 1 : 0);
    const int prevented = (prevented_here ? 1 : 0) + (prevented_outside ? 1 : 0);
    model::require(r.count() == armings - prevented,
                   "each arming is taken by one of stop, reset and fire");
    if (in_force != INT64_MAX) {
      model::require(r.count() > 0 && r.at(r.count() - 1) >= in_force, "no run comes early");
    }
    if (r.count() > 0 && !queued && prevented_here && outside.what == action::kind::nothing) {
      model::require(r.at(0) >= begin + here.to, "the deadline that was replaced does not run it");
    }
    model::require(t.deadline() == vigil::clock::time_point::max(), "nothing is pending");
    model::enough();
  }
};

}  // namespace programs::claims
