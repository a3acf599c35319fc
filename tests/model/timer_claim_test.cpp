// Stop, reset and fire: exactly one of them takes each arming of a timer, from whatever
// thread (RT1, RT2 of runtime_timer.hpp).
//
// The other worker sleeps to the deadline, so it may come at any moment; or the callback
// lies in the queue while both workers are busy.
#include "claims.hpp"
#include "prove.hpp"

using vigil::detail::outcome;
using vigil::detail::ticket;
using vigil::detail::wait_reason;
using namespace programs::claims;

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

TEST_CASE("claim: the last of two resets counts") {
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

TEST_CASE("claim: a queued callback has not started") {
  prove("claim: queued, stop", contest{.queued = true, .here = stop});
  prove("claim: queued, reset later", contest{.queued = true, .here = reset(near)});
  prove("claim: queued, reset to now", contest{.queued = true, .here = reset(0)});
  prove("claim: queued, stop, stop outside",
        contest{.queued = true, .here = stop, .outside = stop});
  prove("claim: queued, reset to now, stop outside",
        contest{.queued = true, .here = reset(0), .outside = stop});
}

TEST_CASE("claim: a function that was posted or deferred runs, or is taken back") {
  // `start` has the function queued, at the latest before `meanwhile` returns.
  const auto taken_back = [](auto start, auto meanwhile) {
    return [start, meanwhile] {
      run_with_outside_work(2, [&] {
        runs r;
        let_the_other_rest();
        bool prevented = false;
        {
          const model::window w;
          const vigil::timer t = start([&r] { r.note(); });
          std::thread thread([&] { prevented = t.stop(); });
          meanwhile();
          thread.join();
          let_time_pass();
        }
        model::require(r.count() == (prevented ? 0 : 1), "one of stop and the run takes it");
        model::enough();
      });
    };
  };
  prove("claim: posted, stop outside",
        taken_back([](auto f) { return vigil::post(f, vigil::stoppable); }, [] {}));
  prove("claim: deferred, stop outside",
        taken_back([](auto f) { return vigil::defer(f, vigil::stoppable); },
                   [] { vigil::this_fiber::yield(); }));
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

// The steps of a waiting fiber without parking: so it stays awake, and the other worker
// fires.
TEST_CASE("claim: a wait that ends by a value as its deadline comes, and the next wait at once") {
  prove("claim: disarm against fire, and the waiter used again", [] {
    vigil::run(workers(2), [] {
      auto& sched = *vigil::detail::current_scheduler();
      vigil::detail::fiber& self = *vigil::detail::current_fiber();
      vigil::sleep_for(std::chrono::nanoseconds(near));
      let_the_other_rest();
      const auto begin_wait = [&](nanos length) {
        const ticket t = self.own_waiter.open(false);
        sched.timers().arm(self.own_waiter, t, model::now() + length);
        sched.board.cover_owed();
        return t;
      };
      const model::window w;
      for (int i = 0; i < 2; ++i) {
        const nanos begin = model::now();
        const ticket t = begin_wait(near);
        if (self.own_waiter.claim(t, outcome::value)) {
          sched.timers().disarm(self.own_waiter);
        } else {
          vigil::detail::park(wait_reason::sleep);
          model::require(self.own_waiter.outcome() == outcome::timeout,
                         "the deadline has ended it");
          model::require(model::now() >= begin + near, "no deadline is early");
        }
      }
      const ticket last = self.own_waiter.open(false);
      let_time_pass();
      model::require(self.own_waiter.outcome() == outcome::open,
                     "an old deadline ends no later wait");
      self.own_waiter.claim(last, outcome::value);
      model::enough();
    });
  });
}
