// The channel of a timer: the ring, a receiver's deadline, stop and reset meet
// at any moment, and each value is received once or prevented (TC1, TC2 of
// timer_channel.hpp).
//
// The other worker sleeps to the deadline, so the ring may come at any moment.
// Receivers are plain threads; those that are to wait already when it begins
// do so because nobody is preempted before a window.
#include "base/nanos.hpp"
#include "chan/channel_core.hpp"
#include "programs.hpp"
#include "prove.hpp"
#include "sched/scheduler.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::detail::nanos;
using vigil::detail::never;

using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::run_with_outside_work;
using programs::workers;

namespace {

constexpr nanos near = 1000;
constexpr nanos far = 1'000'000;

std::chrono::nanoseconds in(nanos n) {
  return std::chrono::nanoseconds(n);
}

vigil::clock::time_point at(nanos n) {
  return vigil::clock::time_point(in(n));
}

nanos of(vigil::clock::time_point t) {
  return t.time_since_epoch().count();
}

// Returns the new deadline.
nanos reset(vigil::timer& t, nanos to) {
  const nanos deadline = model::now() + to;
  t.reset(at(deadline));
  return deadline;
}

// Of a timer's channel: only the timer's own handle is left, and no value.
void require_idle(const vigil::timer& t) {
  const auto ch = t.channel();
  model::require(!ch.try_recv(), "there is no value");
  model::wait_until([&] { return ch.core()->handles.load() == 2; });
}

// The shared intake has room, so that a plain thread arms as quickly as it can.
void arm_once_from_outside() {
  const vigil::timer t(in(2 * far));
  std::thread([from = t.channel()] { static_cast<void>(from.recv_for(1ns)); }).join();
}

// A thread that waits for one value of a channel.
class receiving {
 public:
  // `patience`: when it gives up.
  explicit receiving(vigil::timer_receiver from, std::optional<nanos> patience = std::nullopt)
      : thread_([this, from = std::move(from), patience]() mutable {
          started_.store(true);
          const auto got = patience ? from.recv_for(in(*patience))
                                    : from.recv_until(vigil::clock::time_point::max());
          if (got) {
            model::require(model::now() >= of(*got), "no value comes early");
            value_ = of(*got);
          }
          from = {};
          done_.store(true);
        }) {}

  // It waits, and the other worker sleeps to the timer's deadline. Outside a
  // window.
  void settle() {
    model::wait_until([this] { return started_.load(); });
    const auto& idle = vigil::detail::current_scheduler()->idle();
    model::wait_until([&] { return idle.asleep() == 1 && idle.earliest() != never; });
  }

  bool started() const { return started_.load(); }

  bool is_done() const { return done_.load(); }

  std::optional<nanos> value() {
    if (thread_.joinable()) thread_.join();
    return value_;
  }

 private:
  std::atomic<bool> started_{false};
  std::atomic<bool> done_{false};
  std::optional<nanos> value_;
  std::thread thread_;
};

// A thread waits for the value; the ring against what this one does.
template <class F>
auto waiting(F act) {
  return [act] {
    run_with_outside_work(2, [&] {
      vigil::timer t(in(near));
      receiving r(t.channel());
      r.settle();
      act(t, r);
      require_idle(t);
      model::enough();
    });
  };
}

}  // namespace

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

TEST_CASE("timer channel: of two receivers one gets the value") {
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

TEST_CASE("timer channel: a fiber's deadline, the ring and a thread's stop") {
  prove("timer channel: a fiber's recv_for, stop outside, 1 worker", [] {
    run_with_outside_work(1, [] {
      vigil::timer t(in(near));
      const nanos first = of(t.deadline());
      bool prevented = false;
      {
        const model::window w;
        std::thread thread([&] { prevented = t.stop(); });
        const auto got = t.channel().recv_for(in(near));
        model::note_outcome(got ? "received" : "timeout");
        thread.join();
        model::require(prevented == !got, "received or prevented");
        model::require(!got || of(*got) == first, "the value in force");
      }
      model::require(!t.channel().try_recv(), "there is no value");
      model::enough();
    });
  });
}

TEST_CASE("timer channel: a select on it and on another channel takes one of the two") {
  prove("timer channel: ring, a value, a select", [] {
    run_with_outside_work(2, [] {
      vigil::timer t(in(near));
      const auto other = vigil::make_channel<int>();
      std::size_t taken = 2;
      {
        std::atomic<bool> started{false};
        std::thread thread([&, from = t.channel()] {
          started.store(true);
          taken = vigil::select_ordered(vigil::on_recv(other), vigil::on_recv(from));
        });
        model::wait_until([&] { return started.load(); });
        const auto& idle = vigil::detail::current_scheduler()->idle();
        model::wait_until([&] { return idle.asleep() == 1 && idle.earliest() != never; });
        const model::window w;
        const bool sent = static_cast<bool>(other.try_send(1));
        thread.join();
        model::require(sent == (taken == 0), "what was sent arrives");
        model::require(t.stop() == sent, "the other value is still there");
        let_time_pass();
      }
      model::require(!other.try_send(2), "no receiver is left behind");
      require_idle(t);
      model::enough();
    });
  });
}

TEST_CASE("timer channel: a thread that waits as the runtime goes is told that it is closed") {
  prove("timer channel: a thread waits as the runtime goes", [] {
    std::optional<receiving> r;
    auto rt = std::make_unique<vigil::runtime>(workers(1));
    rt->run([&] {
      const vigil::timer t(1h);
      r.emplace(t.channel());
      model::wait_until([&] { return r->started(); });
    });
    const model::window w;
    rt.reset();
    model::require(!r->value(), "it is told that there will be none");
  });
  const auto arrives = [](auto receive) {
    return [receive] {
      vigil::timer_receiver from;
      auto rt = std::make_unique<vigil::runtime>(workers(1));
      rt->run([&] { from = vigil::after(1h); });
      const model::window w;
      std::thread thread([&] { receive(from); });
      rt.reset();
      thread.join();
      model::require(from.try_recv().is_closed(), "it stays closed");
      model::wait_until([&] { return from.core()->handles.load() == 1; });
    };
  };
  prove("timer channel: recv as the runtime goes", arrives([](const vigil::timer_receiver& from) {
          model::require(!from.recv(), "it is told that there will be none");
        }));
  prove(
      "timer channel: a select as the runtime goes", arrives([](const vigil::timer_receiver& from) {
        const auto other = vigil::make_channel<int>();
        bool closed = false;
        const std::size_t taken = vigil::select_ordered(
            vigil::on_recv(other),
            vigil::on_recv(from, [&](std::optional<vigil::clock::time_point> t) { closed = !t; }));
        model::require(taken == 1 && closed, "it is told that there will be none");
        model::require(!other.try_send(1), "no receiver is left behind");
      }));
  prove("timer channel: ring as the run ends", [] {
    std::optional<receiving> r;
    std::optional<model::window> w;
    vigil::runtime rt(workers(2));
    rt.run([&] {
      const vigil::timer t(in(near));
      r.emplace(t.channel());
      r->settle();
      w.emplace();
    });
    r->value();  // or none: it is told that there will be none
    w.reset();
  });
}
