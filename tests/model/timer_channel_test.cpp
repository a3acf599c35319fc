// The channel of a timer: the ring, a receiver's deadline, stop and reset meet at any
// moment, and each value is received once or prevented (TC1, TC2 of timed_channel.hpp).
//
// The other worker sleeps to the deadline, so the ring may come at any moment. Receivers
// are plain threads; they can already be waiting when a window begins, because no thread
// is preempted before it.
#include "core/base/nanos.hpp"
#include "core/chan/channel_core.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "programs.hpp"
#include "prove.hpp"
#include "receivers.hpp"

#include <vigil/vigil.hpp>

#include <thread>

#include <doctest/doctest.h>

using programs::let_time_pass;
using programs::run_with_outside_work;
using vigil::detail::nanos;
using namespace programs::receivers;

TEST_CASE("timer channel: exactly one of stop and the receiver gets the value") {
  model::take_outcomes();
  prove("timer channel: ring, stop", waiting([](vigil::timer& t, receiving& r) {
          const nanos first = of(t.deadline());
          const model::window w;
          const bool prevented = t.stop();
          model::note_outcome(prevented ? "prevented" : "received");
          let_time_pass();
          nanos second = 0;
          if (prevented) {
            model::require(!r.is_done(), "nothing is received after stop()");
            second = reset(t, near);
          }
          model::require(r.value() == (prevented ? second : first), "the value in force");
          model::require(!t.stop(), "it was received");
        }));
  expect_outcomes({"prevented", "received"});
  prove("timer channel: ring, stop, stop outside", waiting([](vigil::timer& t, receiving& r) {
          const nanos first = of(t.deadline());
          bool outside = false;
          const model::window w;
          std::thread thread([&] { outside = t.stop(); });
          const bool here = t.stop();
          thread.join();
          model::require(!(here && outside), "one of them at most");
          if (here || outside) {
            let_time_pass();
            model::require(!r.is_done(), "nothing is received after stop()");
            t.reset(in(near));
            model::require(r.value() > first, "the value in force");
          } else {
            model::require(r.value() == first, "the value in force");
          }
        }));
}

TEST_CASE("timer channel: after a reset the receiver gets the new deadline, or had the old one") {
  const auto reset_to = [](nanos to) {
    return waiting([to](vigil::timer& t, receiving& r) {
      const nanos first = of(t.deadline());
      const model::window w;
      const nanos second = model::now() + to;
      const bool prevented = t.reset(at(second));
      model::note_outcome(prevented ? "prevented" : "received");
      model::require(r.value() == (prevented ? second : first), "the value in force");
      model::require(!vigil::detail::current_scheduler()->timers().anything_pending(),
                     "no alarm is set while nobody waits");
      let_time_pass();
      model::require(t.stop() != prevented, "the new arming is pending, or was received");
    });
  };
  model::take_outcomes();
  prove("timer channel: ring, reset later", reset_to(far));
  expect_outcomes({"prevented", "received"});
  prove("timer channel: ring, reset earlier", reset_to(near / 2));
  expect_outcomes({"prevented", "received"});
  prove("timer channel: ring, reset to now", reset_to(0));
  expect_outcomes({"prevented", "received"});
  prove("timer channel: ring, reset later, stop outside",
        waiting([](vigil::timer& t, receiving& r) {
          const nanos first = of(t.deadline());
          bool stopped = false;
          const model::window w;
          std::thread thread([&] { stopped = t.stop(); });
          const bool replaced = t.reset(in(far));
          thread.join();
          // Two armings: the receiver takes one, unless the others took both.
          if (replaced && stopped) {
            let_time_pass();
            model::require(!r.is_done(), "nothing is received after stop()");
            t.reset(in(near));
            model::require(r.value() > first, "the value in force");
          } else {
            model::require(r.value().has_value(), "the wait ends");
            let_time_pass();
            model::require(t.stop() != (replaced || stopped), "the other is pending, or was taken");
          }
        }));
}

TEST_CASE("timer channel: a receiver whose own deadline comes leaves the value where it is") {
  model::take_outcomes();
  prove("timer channel: ring, timeout", [] {
    run_with_outside_work(2, [] {
      vigil::timer t(in(near));
      const nanos first = of(t.deadline());
      receiving r(t.channel(), near);
      r.settle();
      {
        const model::window w;
        const auto got = r.value();
        model::note_outcome(got ? "received" : "timeout");
        model::require(!got || got == first, "the value in force");
        model::require(t.stop() == !got, "received or still there");
        let_time_pass();
      }
      require_idle(t);
      model::enough();
    });
  });
  expect_outcomes({"received", "timeout"});
  prove("timer channel: ring, timeout, stop", [] {
    run_with_outside_work(2, [] {
      vigil::timer t(in(near));
      const nanos first = of(t.deadline());
      receiving r(t.channel(), near);
      r.settle();
      {
        const model::window w;
        const bool prevented = t.stop();
        const auto got = r.value();
        model::require(!got || got == first, "the value in force");
        model::require(prevented == !got, "received or prevented");
        let_time_pass();
      }
      require_idle(t);
      model::enough();
    });
  });
  prove("timer channel: ring, timeout, reset to now", [] {
    run_with_outside_work(2, [] {
      vigil::timer t(in(near));
      receiving r(t.channel(), near);
      r.settle();
      {
        const model::window w;
        const bool prevented = t.reset(in(0));
        const auto got = r.value();
        model::require(prevented || got, "nobody else could have had the first");
        const bool received_second = got && prevented;
        model::require(t.stop() == !received_second, "received or still there");
        let_time_pass();
      }
      require_idle(t);
      model::enough();
    });
  });
}

TEST_CASE("timer channel: one of two receivers gets the value") {
  prove("timer channel: ring, two receivers, one leaves",
        waiting([](vigil::timer& t, receiving& r) {
          const nanos first = of(t.deadline());
          const model::window w;
          const auto mine = t.channel().try_recv();
          if (mine) {
            model::require(of(*mine) == first, "the value in force");
            let_time_pass();
            model::require(!r.is_done(), "there is one value");
            t.reset(in(near));
          }
          model::require(r.value().has_value(), "the wait ends");
        }));
}

TEST_CASE("timer channel: a ticker rings for each receiver") {
  prove("timer channel: a ticker, two receivers", [] {
    run_with_outside_work(2, [] {
      vigil::ticker t(in(near));
      const nanos first = of(t.deadline());
      receiving r(t.channel());
      receiving s(t.channel());
      r.settle();
      s.settle();
      {
        const model::window w;
        const nanos a = r.value().value_or(0);
        const nanos b = s.value().value_or(0);
        model::require(a != b, "each tick is received once");
        for (const nanos tick : {a, b})
          model::require(tick >= first && (tick - first) % near == 0, "the phase is kept");
        let_time_pass();
      }
      model::require(t.stop(), "it ticks on");
      const auto ch = t.channel();
      model::wait_until([&] { return ch.core()->handles.load() == 2; });
      model::enough();
    });
  });
}

TEST_CASE("timer channel: the last handle goes as it rings") {
  prove("timer channel: ring, timeout, the last handle", [] {
    run_with_outside_work(2, [] {
      vigil::timer t(in(near));
      receiving r(t.channel(), near);
      r.settle();
      const model::window w;
      t = {};
      r.value();
      let_time_pass();
      model::enough();
    });
  });
}

TEST_CASE("timer channel: a receiver arrives as others stop and reset") {
  prove("timer channel: recv, stop", [] {
    run_with_outside_work(2, [] {
      arm_once_from_outside();
      let_time_pass();
      vigil::timer t(in(near));
      {
        const model::window w;
        receiving r(t.channel(), near);
        const bool prevented = t.stop();
        const auto got = r.value();
        model::require(prevented == !got, "received or prevented");
        let_time_pass();
      }
      require_idle(t);
      model::enough();
    });
  });
  prove("timer channel: recv, reset of one that was stopped", [] {
    run_with_outside_work(2, [] {
      arm_once_from_outside();
      let_time_pass();
      vigil::timer t(in(near));
      t.stop();
      {
        const model::window w;
        receiving r(t.channel());
        model::require(!t.reset(in(near)), "it was stopped");
        model::require(r.value().has_value(), "the wait ends");
        let_time_pass();
      }
      require_idle(t);
      model::enough();
    });
  });
}
