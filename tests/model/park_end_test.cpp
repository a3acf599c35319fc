// Park and ready, on real workers: stops, timers, handles and thieves.
#include "core/base/spinlock.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/wait/note.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/worker/worker.hpp"
#include "explorer/engine.hpp"
#include "mailboxes.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using programs::gate;
using programs::run_with_outside_work;
using programs::workers;
using vigil::detail::current_fiber;
using vigil::detail::fiber;
using vigil::detail::note;
using vigil::detail::ticket;
using namespace programs::mailboxes;

TEST_CASE("park: a stop that comes before the fiber is off its stack") {
  const auto is_stopped = [](vigil::fiber<int>& f) {
    try {
      f.join();
    } catch (const vigil::cancelled&) {
      return true;
    }
    return false;
  };
  prove("park: stop by the other worker", [=] {
    gate g;
    mailbox never_filled;
    vigil::run(workers(2), [&] {
      auto f = about_to_end(g, [&] { return never_filled.take(); });
      const model::window w;
      g.open();
      f.request_stop();
      model::require(is_stopped(f), "the wait ends");
    });
  });
  prove("park: stop by a plain thread", [=] {
    gate g;
    mailbox never_filled;
    run_with_outside_work(2, [&] {
      auto f = about_to_end(g, [&] { return never_filled.take(); });
      const model::window w;
      std::thread stopper([&] {
        g.open();
        f.request_stop();
        model::require(is_stopped(f), "the wait ends");
      });
      stopper.join();
    });
  });
  prove("park: stop against a value, from two sides", [] {
    gate g;
    mailbox m;
    run_with_outside_work(2, [&] {
      auto f = about_to_end(g, [&] { return m.take(); });
      const model::window w;
      g.open();
      std::thread putter([&] { m.put(7); });
      f.request_stop();
      try {
        model::require(f.join() == 7, "the value is there");
      } catch (const vigil::cancelled&) {
      }
      putter.join();
    });
  });
}

TEST_CASE("park: a timer that comes before the fiber is off its stack") {
  // timer_claim_test.cpp has it with clock and timer fiber. Here is only the effect of
  // firing on a sleeper: it claims the ticket, without a lock, and delivers.
  prove("park: claimed without a lock, other worker", [] {
    gate g;
    alarm_clock a;
    vigil::run(workers(2), [&] {
      auto other = about_to_end(g, [&] { a.ring(); });
      const model::window w;
      g.open();
      a.sleep();
      other.join();
    });
  });
  prove("park: claimed without a lock, plain thread", [] {
    gate g;
    alarm_clock a;
    run_with_outside_work(2, [&] {
      auto other = about_to_end(g, [&] { a.sleep(); });
      const model::window w;
      g.open();
      std::thread ringer([&] { a.ring(); });
      ringer.join();
      other.join();
    });
  });
}

TEST_CASE("park: a handle is let go while its fiber ends: the result dies once") {
  prove(
      "park: detach against the end",
      [] {
        gate g;
        std::atomic<int> made{0};
        std::atomic<int> alive{0};
        const fiber* ended = nullptr;
        vigil::run(workers(2), [&] {
          auto f = about_to_end(g, [&] {
            ended = current_fiber();
            made.store(1, std::memory_order_relaxed);
            return counted_result(alive);
          });
          const model::window w;
          g.open();
          f.detach();
          model::wait_until([&] {
            return made.load(std::memory_order_relaxed) == 1 &&
                   alive.load(std::memory_order_relaxed) == 0;
          });
        });
        model::require(alive.load() == 0, "the result is gone");
        model::require(is_gone(ended), "and the stack");
      },
      also::unbounded);
  prove("park: the handle dropped against the end", [] {
    std::atomic<int> results{0};
    const fiber* ended = nullptr;
    gate g;
    vigil::run(workers(2), [&] {
      std::optional f(about_to_end(g, [&] {
        ended = current_fiber();
        return counted_result(results);
      }));
      {
        const model::window w;
        g.open();
        f.reset();
      }
      model::require(results.load() == 0, "the result is gone");
    });
    model::require(is_gone(ended), "and the stack");
  });
}

TEST_CASE("park: the other worker takes a fiber that yields") {
  prove("park: yield against a thief", [] {
    gate g;
    vigil::run(workers(2), [&] {
      auto other = about_to_end(g, [] {});
      int turns = 0;
      const model::window w;
      auto f = vigil::spawn([&] {
        ++turns;
        vigil::this_fiber::yield();
        ++turns;
      });
      auto behind = vigil::spawn([] {});  // a reason to yield
      g.open();                           // the other worker looks for work
      f.join();
      model::require(turns == 2, "each turn is done once");
      behind.join();
      other.join();
    });
  });
}

TEST_CASE("park: two readied in a row: the next fiber, the one behind it, and a thief") {
  prove("park: two puts, their worker parks", [] {
    vigil::run(workers(2), [] {
      mailbox a;
      mailbox b;
      auto first = vigil::spawn([&] { return a.take(); });
      auto second = vigil::spawn([&] { return b.take(); });
      vigil::sleep_for(1ms);  // both wait, and the other worker sleeps
      const model::window w;
      a.put(1);
      b.put(2);
      model::require(first.join() + second.join() == 3, "both go on");
    });
  });
  prove("park: two puts, their worker stays busy", [] {
    vigil::run(workers(2), [] {
      mailbox a;
      mailbox b;
      std::atomic<int> done{0};
      auto first = vigil::spawn([&] { done.fetch_add(a.take()); });
      auto second = vigil::spawn([&] { done.fetch_add(b.take()); });
      vigil::sleep_for(1ms);  // both wait, and the other worker sleeps
      {
        const model::window w;
        a.put(1);
        b.put(2);
        model::wait_until([&] { return done.load(std::memory_order_relaxed) == 3; });
      }
      first.join();
      second.join();
    });
  });
}

TEST_CASE("park: the next fiber here is taken by its worker or by a thief") {
  // The thief waits a moment first, for the worker that stays busy meanwhile.
  prove("park: next, its worker against a thief", [] {
    gate g;
    mailbox m;
    std::atomic<bool> free{false};
    run_with_outside_work(2, [&] {
      auto thief = about_to_end(g, [] {});
      auto f = vigil::spawn([&] { return m.take(); });
      while (!m.has_taker())
        vigil::this_fiber::yield();  // until it waits; it was on this worker
      const model::window w;
      std::thread user([&] {
        note n;
        n.sleep_until(model::now() + 1000);
        free.store(true, std::memory_order_relaxed);
      });
      g.open();
      m.put(7);
      model::wait_until([&] { return free.load(std::memory_order_relaxed); });
      model::require(f.join() == 7, "it goes on once");
      thief.join();
      user.join();
    });
  });
}
