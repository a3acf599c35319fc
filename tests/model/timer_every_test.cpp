// Periodic timers and stop_and_wait: exactly one party takes each arming (RT1, RT2 of
// runtime_timer.hpp).
#include "claims.hpp"
#include "prove.hpp"

using vigil::detail::never;
using vigil::detail::runtime_timer;
using vigil::detail::timer_service;
using namespace programs::claims;

namespace {

// A callback's run that has begun, and ends when it may.
struct begun_run {
  begun_run() { may_end.await(); }

  void end() { may_end.open(); }

  void require_over() const {
    model::require(finished == 1, "it is over, and what it wrote is seen");
  }

  gate may_end;
  int finished = 0;
  vigil::timer timer = vigil::after_func(0s, [this] {
    may_end.enter();
    finished = 1;
  });
};

}  // namespace

TEST_CASE("claim: a periodic timer and its runner") {
  // The third run waits until the main fiber has done its part; otherwise the runs would
  // have no end.
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
        t.stop();  // otherwise the runs would have no end
        inside.store(false);
      });
      // Fires right after the old entry, on the timer fiber.
      auto& service = static_cast<timer_service&>(vigil::detail::current_scheduler()->timers());
      auto* const after = service.make_send(
          [](void* flag, nanos, vigil::detail::fire_again*) noexcept {
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
      release_record(*after);
      model::enough();
    });
  });
}

TEST_CASE("claim: stop_and_wait comes back when no run is under way, and none will begin") {
  prove("claim: stop_and_wait on a fiber against the end of the run", [] {
    vigil::run(workers(2), [] {
      begun_run r;
      const model::window w;
      r.end();
      model::require(!r.timer.stop_and_wait(), "it had begun");
      r.require_over();
      model::enough();
    });
  });
  prove("claim: a stop as stop_and_wait finds the run over readies nobody", [] {
    gate g;
    vigil::run(workers(3), [&] {
      auto& idle = vigil::detail::current_scheduler()->idle();
      auto t = vigil::after_func(0s, [&] { g.enter(); });
      g.await();
      const auto answers = vigil::make_channel<int>(1);
      std::atomic<bool> begins{false};
      auto f = vigil::spawn([&] {
        begins.store(true);
        try {
          t.stop_and_wait();
        } catch (const vigil::stopped&) {
        }
        const vigil::this_fiber::shield until_the_answer;
        model::require(answers.recv() == 1, "the next wait ends by its own event alone");
      });
      {
        const model::window w;
        model::wait_until([&] { return begins.load(); });
        g.open();
        model::wait_until([&] { return idle.asleep() >= 1; });  // the run may be over
        f.request_stop();
        model::wait_until([&] { return idle.asleep() == 2; });
      }
      answers.send(1);
      f.join();
      model::enough();
    });
  });
  prove("claim: stop_and_wait on a plain thread against the end of the run", [] {
    run_with_outside_work(2, [] {
      begun_run r;
      const model::window w;
      std::thread thread([&] {
        model::require(!r.timer.stop_and_wait(), "it had begun");
        r.require_over();
      });
      r.end();
      thread.join();
      model::enough();
    });
  });
  prove("claim: stop_and_wait from two sides", [] {
    run_with_outside_work(2, [] {
      begun_run r;
      const model::window w;
      std::thread thread([&] {
        r.timer.stop_and_wait();
        r.require_over();
      });
      r.end();
      r.timer.stop_and_wait();
      r.require_over();
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
        if (++ran == 2) t.stop();  // otherwise the runs would have no end
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

TEST_CASE("claim: a run that is waited for arms nothing (SW1-SW3)") {
  prove("claim: stop_and_wait against a reset in the run", [] {
    gate g;
    vigil::run(workers(2), [&] {
      std::atomic<int> ran{0};
      std::atomic<bool> came_back{false};
      const vigil::timer t = vigil::after_func(0s, [&](vigil::timer& self) {
        model::require(!came_back.load(), "no run is under way afterwards");
        if (ran.fetch_add(1) > 0) return;
        g.enter();
        self.reset(0s);
      });
      g.await();
      const model::window w;
      g.open();
      t.stop_and_wait();
      came_back.store(true);
      model::require(!t.stop(), "none is pending afterwards");
      let_time_pass();
      model::enough();
    });
  });
  prove("claim: a stop_and_wait that gives up against a reset in the run", [] {
    gate g;
    vigil::run(workers(2), [&] {
      auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      cancel();
      std::atomic<bool> gave_up{false};
      std::atomic<bool> is_late{false};
      const vigil::timer t = vigil::after_func(0s, [&](vigil::timer& self) {
        model::require(!is_late.load(), "a run that was given up has armed nothing");
        g.enter();
        if (gave_up.load()) is_late.store(true);
        self.reset(0s);
        const bool is_given_up = gave_up.load();  // perhaps in between
        model::require(!self.stop() || !is_given_up, "nor is it pending");
      });
      g.await();
      const model::window w;
      g.open();
      try {
        t.stop_and_wait(ctx);
      } catch (const vigil::cancelled&) {
        gave_up.store(true);
      }
      vigil::sleep_for(1us);  // leaves this worker to a run that must not begin
      let_time_pass();
      t.stop_and_wait();
      model::enough();
    });
  });
}
