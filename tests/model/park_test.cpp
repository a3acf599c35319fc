// Park and ready, on real workers: a fiber is queued exactly once for each park, however
// the two meet, and a fiber that ends is given back exactly once.
#include "core/sched/call/park.hpp"

#include "core/base/spinlock.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/wait/note.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/worker/worker.hpp"
#include "explorer/engine.hpp"
#include "mailboxes.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using programs::gate;
using programs::run_with_outside_work;
using programs::workers;
using vigil::detail::fiber;
using namespace programs::mailboxes;

TEST_CASE("park: a join and the end of the fiber meet") {
  prove("park: spawn and join, 2 workers", [] {
    vigil::run(workers(2), [] {
      vigil::sleep_for(1ms);  // both workers have begun
      const model::window w;
      model::require(vigil::spawn([] { return 7; }).join() == 7, "the result is there");
    });
  });
  prove("park: join against the end", [] {
    gate g;
    vigil::run(workers(2), [&] {
      auto f = about_to_end(g, [] { return 7; });
      const model::window w;
      g.open();
      model::require(f.join() == 7, "the result is there");
    });
  });
}

TEST_CASE("park: a plain thread joins a fiber that ends") {
  prove(
      "park: join from a plain thread",
      [] {
        gate g;
        run_with_outside_work(2, [&] {
          auto f = about_to_end(g, [] { return 7; });
          int got = 0;
          const model::window w;
          std::thread joiner([&] { got = f.join(); });
          g.open();
          joiner.join();
          model::require(got == 7, "the result is there");
        });
      },
      also::unbounded);
}

TEST_CASE("park: a fiber unlocks and parks, and the next owner of the lock readies it") {
  prove("park: take here, put by the other worker", [] {
    gate g;
    vigil::run(workers(2), [&] {
      mailbox m;
      auto putter = about_to_end(g, [&] { m.put(7); });
      {
        const model::window w;
        g.open();
        model::require(m.take() == 7, "what was put is taken");
      }
      putter.join();
    });
  });
  prove("park: take there, put by this worker", [] {
    gate g;
    vigil::run(workers(2), [&] {
      mailbox m;
      auto taker = about_to_end(g, [&] { return m.take(); });
      const model::window w;
      g.open();
      m.put(7);
      model::require(taker.join() == 7, "what was put is taken");
    });
  });
}

TEST_CASE("park: a plain thread readies through the injection queue") {
  prove("park: take, put by a plain thread, 1 worker", [] {
    run_with_outside_work(1, [] {
      mailbox m;
      const model::window w;
      std::thread putter([&] { m.put(7); });
      model::require(vigil::spawn([&] { return m.take(); }).join() == 7, "what was put is taken");
      putter.join();
    });
  });
  prove("park: take, put by a plain thread, 2 workers", [] {
    gate g;
    run_with_outside_work(2, [&] {
      mailbox m;
      auto taker = about_to_end(g, [&] { return m.take(); });
      {
        const model::window w;
        std::thread putter([&] { m.put(7); });
        g.open();
        putter.join();
      }
      model::require(taker.join() == 7, "what was put is taken");
    });
  });
}

TEST_CASE("park: a pinned fiber is readied by a plain thread, through its worker's inbox") {
  prove(
      "park: pinned, put by a plain thread",
      [] {
        run_with_outside_work(2, [] {
          const vigil::this_fiber::pin here;
          vigil::sleep_for(1ms);  // the other worker sleeps
          mailbox m;
          const model::window w;
          std::thread putter([&] { m.put(7); });
          model::require(m.take() == 7, "what was put is taken");
          putter.join();
        });
      },
      also::unbounded);
}

TEST_CASE("park: two pinned fibers share an inbox") {
  prove("park: two pinned, put by a plain thread", [] {
    mailbox mine;
    mailbox its;
    run_with_outside_work(1, [&] {
      const vigil::this_fiber::pin here;
      auto f = vigil::spawn([&] {
        const vigil::this_fiber::pin p;
        return its.take();
      });
      vigil::sleep_for(1ms);  // the fiber waits
      const model::window w;
      std::thread putter([&] {
        its.put(1);
        mine.put(2);
      });
      model::require(mine.take() + f.join() == 3, "both go on");
      putter.join();
    });
  });
}

TEST_CASE("park: two waits in a row, each ended once") {
  prove("park: two takes, two puts", [] {
    gate g;
    vigil::run(workers(2), [&] {
      mailbox there;
      mailbox back;
      auto other = about_to_end(g, [&] {
        there.put(1);
        const int got = back.take();
        there.put(got + 1);
      });
      {
        const model::window w;
        g.open();
        model::require(there.take() == 1, "the first comes first");
        back.put(5);
        model::require(there.take() == 6, "then the second");
      }
      other.join();
    });
  });
}
