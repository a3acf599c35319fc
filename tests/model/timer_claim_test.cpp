// Stop, reset and fire: each arming of a timer is taken by exactly one of them
// (T1, T2 of runtime_timer.hpp), whoever they come from.
//
// The other worker sleeps to the deadline, so it may come at any moment; or the
// callback lies in the queue while both workers are busy.
#include "base/nanos.hpp"
#include "programs.hpp"
#include "prove.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/fiber/park.hpp"
#include "sched/scheduler.hpp"
#include "sched/wait/waiter.hpp"
#include "timer/timer_service.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::detail::nanos;
using vigil::detail::never;
using vigil::detail::outcome;
using vigil::detail::runtime_timer;
using vigil::detail::ticket;
using vigil::detail::timer_service;
using vigil::detail::wait_reason;

using programs::gate;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::run_with_outside_work;
using programs::workers;

namespace {

constexpr nanos near = 1000;
constexpr nanos nearer = 500;
constexpr nanos far = 1'000'000;

// The shared intake has room, so that arming from a plain thread later is as
// short as it can be.
void arm_once_from_outside(const vigil::timer& t) {
  std::thread([copy = t]() mutable {
    copy.reset(1h);
    copy.stop();
  }).join();
}

// When the callback ran.
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

// What somebody does to the timer.
struct action {
  enum class kind { nothing, stop, reset };
  kind what;
  nanos to = 0;
};

constexpr action nothing{action::kind::nothing};
constexpr action stop{action::kind::stop};

constexpr action reset(nanos to) {
  return {action::kind::reset, to};
}

// Whether it prevented a run.
bool act(vigil::timer& t, const action& a) {
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

// One arming that may come due at any moment; what the main fiber does about it,
// and what a plain thread does at the same time.
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

}  // namespace

TEST_CASE("claim: exactly one of stop, reset and fire takes an arming") {
  prove("claim: fire, stop", contest{.here = stop});
  prove("claim: fire, reset later", contest{.here = reset(far)});
  prove("claim: fire, reset earlier", contest{.here = reset(nearer)});
  prove("claim: fire, reset to now", contest{.here = reset(0)});
}

TEST_CASE("claim: the same with a plain thread") {
  prove("claim: fire, stop, stop outside", contest{.here = stop, .outside = stop});
  prove("claim: fire, reset later, stop outside", contest{.here = reset(far), .outside = stop});
  prove("claim: fire, stop, reset later outside", contest{.here = stop, .outside = reset(far)});
  prove("claim: fire, reset to now, stop outside", contest{.here = reset(0), .outside = stop});
}

TEST_CASE("claim: of two resets the last is in force") {
  prove("claim: fire, reset later, reset later still outside",
        contest{.here = reset(far), .outside = reset(2 * far)});
  prove("claim: reset here and outside", [] {
    run_with_outside_work(2, [] {
      runs r;
      gate busy;
      vigil::go([&] { busy.enter(); });
      busy.await();
      auto t = vigil::after_func(std::chrono::nanoseconds(2 * far), [&] { r.note(); });
      arm_once_from_outside(t);
      t.reset(std::chrono::nanoseconds(2 * far));
      nanos in_force = 0;
      {
        const model::window w;
        std::thread thread(
            [&] { model::require(t.reset(std::chrono::nanoseconds(near)), "it was pending"); });
        model::require(t.reset(std::chrono::nanoseconds(far)), "it was pending");
        thread.join();
        in_force = t.deadline().time_since_epoch().count();
      }
      busy.open();
      let_time_pass();
      model::require(r.count() == 1, "two resets, one run");
      model::require(r.at(0) == in_force, "at the deadline in force, neither early nor late");
      model::enough();
    });
  });
}

TEST_CASE("claim: a callback that is queued has not started") {
  prove("claim: queued, stop", contest{.queued = true, .here = stop});
  prove("claim: queued, reset later", contest{.queued = true, .here = reset(near)});
  prove("claim: queued, reset to now", contest{.queued = true, .here = reset(0)});
  prove("claim: queued, stop, stop outside",
        contest{.queued = true, .here = stop, .outside = stop});
  prove("claim: queued, reset to now, stop outside",
        contest{.queued = true, .here = reset(0), .outside = stop});
}

TEST_CASE("claim: after an earlier reset the timer fires at the new deadline") {
  prove("claim: reset earlier, on time", [] {
    vigil::run(workers(2), [] {
      runs r;
      auto t = vigil::after_func(std::chrono::nanoseconds(far), [&] { r.note(); });
      let_the_other_rest();
      const model::window w;
      const nanos begin = model::now();
      const bool pending = t.reset(std::chrono::nanoseconds(near));
      const bool in_time = model::now() == begin;
      r.await(pending ? 1 : 2);
      // Only the other worker sleeps: if it slept too long, this shows it.
      if (in_time) model::require(r.at(0) == begin + near, "it fires on time");
      model::enough();
    });
  });
}

// What a waiting fiber does, but for parking: so it stays awake, and the other
// worker fires.
TEST_CASE("claim: a wait that ends by a value as its deadline comes, and the next wait at once") {
  prove("claim: disarm against fire, and the waiter used again", [] {
    vigil::run(workers(2), [] {
      auto& sched = *vigil::detail::current_scheduler();
      vigil::detail::fiber& self = *vigil::detail::current_fiber();
      vigil::sleep_for(std::chrono::nanoseconds(near));
      let_the_other_rest();
      const auto begin_wait = [&](nanos length) {
        const ticket t = self.self.open(false);
        sched.timers().arm(self.self, t, model::now() + length);
        sched.cover_owed();
        return t;
      };
      const model::window w;
      for (int i = 0; i < 2; ++i) {
        const nanos begin = model::now();
        const ticket t = begin_wait(near);
        if (self.self.claim(t, outcome::value)) {
          sched.timers().disarm(self.self);
        } else {
          vigil::detail::park(wait_reason::sleep);
          model::require(self.self.outcome() == outcome::timeout, "the deadline has ended it");
          model::require(model::now() >= begin + near, "no deadline is early");
        }
      }
      const ticket last = self.self.open(false);
      let_time_pass();
      model::require(self.self.outcome() == outcome::open, "an old deadline ends no later wait");
      self.self.claim(last, outcome::value);
      model::enough();
    });
  });
}

TEST_CASE("claim: a periodic timer and its runner") {
  // The third run waits until the main fiber has done its part, or there would
  // be no end of them.
  const auto stopped = [](auto every) {
    return [every] {
      vigil::run(workers(2), [&] {
        runs r;
        gate third;
        vigil::timer t = every([&] {
          r.note();
          if (r.count() == 3) third.enter();
        });
        let_the_other_rest();
        const model::window w;
        const bool prevented = t.stop();
        // A run that had begun may be under way; there will be no other one.
        const int before = r.count();
        third.open();
        let_time_pass();
        model::require(prevented || r.count() > 0, "pending, or in a run");
        model::require(r.count() <= before + 1, "stopped is stopped");
        model::require(t.deadline() == vigil::clock::time_point::max(), "nothing is pending");
        model::enough();
      });
    };
  };
  prove("claim: every, stop",
        stopped([](auto f) { return vigil::every(std::chrono::nanoseconds(near), f); }));
  prove("claim: every from the end, stop", stopped([](auto f) {
          return vigil::every(std::chrono::nanoseconds(near), f, vigil::from_end);
        }));
  prove("claim: every, reset", [] {
    vigil::run(workers(2), [] {
      runs r;
      gate third;
      const nanos begin = model::now();
      auto t = vigil::every(std::chrono::nanoseconds(near), [&] {
        r.note();
        if (r.count() == 3) third.enter();
      });
      let_the_other_rest();
      const model::window w;
      model::require(t.reset(std::chrono::nanoseconds(far)), "a periodic timer is always pending");
      if (r.count() == 0) {
        r.await(1);
        model::require(r.at(0) >= begin + near, "no run comes early");
      }
      t.stop();
      third.open();
      let_time_pass();
      model::require(t.deadline() == vigil::clock::time_point::max(), "nothing is pending");
      model::enough();
    });
  });
  prove("claim: every, stopped by itself and reset from outside", [] {
    vigil::run(workers(2), [] {
      runs r;
      vigil::timer t;
      std::atomic<int> prevented{0};
      t = vigil::every(std::chrono::nanoseconds(far), [&] {
        r.note();
        if (t.stop()) prevented.fetch_add(1, std::memory_order_relaxed);
      });
      t.reset(std::chrono::nanoseconds(near));
      let_the_other_rest();
      const model::window w;
      const bool pending = t.reset(std::chrono::nanoseconds(nearer));
      let_time_pass();
      model::require(prevented.load(std::memory_order_relaxed) == r.count(),
                     "the stop inside takes the next run");
      model::require(r.count() == (pending ? 1 : 2), "a reset brings it back");
      model::enough();
    });
  });
}

TEST_CASE("claim: a dead duplicate does not take a periodic timer from its runner") {
  prove("claim: every, reset earlier, and its old entry surfaces in a run", [] {
    vigil::run(workers(2), [] {
      std::atomic<bool> inside{false};
      std::atomic<bool> surfaced{false};
      vigil::timer t;
      t = vigil::every(std::chrono::nanoseconds(near), [&] {
        model::require(!inside.exchange(true), "no two runs overlap");
        model::wait_until([&] { return surfaced.load(); });
        t.stop();  // or there would be no end of them
        inside.store(false);
      });
      // Fires right after the old entry, on the timer fiber.
      auto& service = static_cast<timer_service&>(vigil::detail::current_scheduler()->timers());
      auto* const after = service.make_send(
          [](void* flag, nanos, runtime_timer::refire&) noexcept {
            static_cast<std::atomic<bool>*>(flag)->store(true);
          },
          &surfaced,
          service.generation());
      service.arm_at(*after, model::now() + near + 1);
      let_the_other_rest();
      t.reset(std::chrono::nanoseconds(nearer));
      model::wait_until([&] { return inside.load(); });
      // The other worker is in the run; this one fires the rest.
      const model::window w;
      vigil::sleep_for(std::chrono::nanoseconds(near));
      t.stop_and_wait();
      drop_reference(*after);
      model::enough();
    });
  });
}

TEST_CASE("claim: stop_and_wait comes back when no run is under way, and none will begin") {
  prove("claim: stop_and_wait on a fiber against the end of the run", [] {
    gate g;
    vigil::run(workers(2), [&] {
      int finished = 0;
      auto t = vigil::after_func(0s, [&] {
        g.enter();
        finished = 1;
      });
      g.await();
      const model::window w;
      g.open();
      model::require(!t.stop_and_wait(), "it had begun");
      model::require(finished == 1, "it is over, and what it wrote is seen");
      model::enough();
    });
  });
  prove("claim: stop_and_wait on a plain thread against the end of the run", [] {
    gate g;
    run_with_outside_work(2, [&] {
      int finished = 0;
      auto t = vigil::after_func(0s, [&] {
        g.enter();
        finished = 1;
      });
      g.await();
      const model::window w;
      std::thread thread([&] {
        model::require(!t.stop_and_wait(), "it had begun");
        model::require(finished == 1, "it is over, and what it wrote is seen");
      });
      g.open();
      thread.join();
      model::enough();
    });
  });
  prove("claim: stop_and_wait from two sides", [] {
    gate g;
    run_with_outside_work(2, [&] {
      int finished = 0;
      auto t = vigil::after_func(0s, [&] {
        g.enter();
        finished = 1;
      });
      g.await();
      const model::window w;
      std::thread thread([&] {
        t.stop_and_wait();
        model::require(finished == 1, "it is over, and what it wrote is seen");
      });
      g.open();
      t.stop_and_wait();
      model::require(finished == 1, "it is over, and what it wrote is seen");
      thread.join();
      model::enough();
    });
  });
  prove("claim: stop_and_wait against fire", [] {
    vigil::run(workers(2), [] {
      int ran = 0;
      auto t = vigil::after_func(std::chrono::nanoseconds(near), [&] { ++ran; });
      let_the_other_rest();
      const model::window w;
      const bool prevented = t.stop_and_wait();
      const int after = ran;
      let_time_pass();
      model::require(after == (prevented ? 0 : 1), "either it never runs, or it is over");
      model::require(ran == after, "none begins afterwards");
      model::enough();
    });
  });
  prove("claim: every, stop_and_wait", [] {
    vigil::run(workers(2), [] {
      int ran = 0;
      vigil::timer t;
      t = vigil::every(std::chrono::nanoseconds(far), [&] {
        if (++ran == 2) t.stop();  // or there would be no end of them
      });
      t.reset(std::chrono::nanoseconds(near));
      let_the_other_rest();
      const model::window w;
      t.stop_and_wait();
      const int after = ran;
      let_time_pass();
      model::require(ran == after, "none begins afterwards");
      model::enough();
    });
  });
}
