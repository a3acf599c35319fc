// Park and ready, on real workers: a fiber is queued exactly once for each
// park, however the two meet, and a fiber that ends is given back exactly once.
#include "sched/fiber/park.hpp"

#include "base/spinlock.hpp"
#include "explorer/engine.hpp"
#include "programs.hpp"
#include "prove.hpp"
#include "sched/wait/caller.hpp"
#include "sched/wait/note.hpp"
#include "sched/wait/waiter.hpp"
#include "sched/worker.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::detail::caller;
using vigil::detail::current_fiber;
using vigil::detail::fiber;
using vigil::detail::lock_guard;
using vigil::detail::lock_rank;
using vigil::detail::never;
using vigil::detail::note;
using vigil::detail::outcome;
using vigil::detail::spinlock;
using vigil::detail::ticket;
using vigil::detail::wait_reason;
using vigil::detail::waiter;

using programs::gate;
using programs::run_with_outside_work;
using programs::workers;

namespace {

// One value for one fiber, built on park and ready as the library's own waits
// are: the lock goes to park().
class mailbox {
 public:
  int take() {
    caller self;
    if (self.may_not_wait()) self.refuse("take");
    lock_.lock();
    if (!filled_) {
      const ticket t = self.open();
      taker_ = &self.self();
      its_ticket_ = t;
      const outcome how = self.wait(t, wait_reason::join, lock_);
      if (how == outcome::stopped) {
        take_out(self.self());
        self.throw_if_ended(how);
      }
      model::require(how == outcome::value, "a fiber goes on only when its wait is over");
      lock_.lock();
    }
    model::require(filled_, "the value is there");
    filled_ = false;
    const int v = value_;
    lock_.unlock();
    return v;
  }

  bool has_taker() {
    const lock_guard guard(lock_);
    return taker_ != nullptr;
  }

  void put(int v) {
    waiter* ended = nullptr;
    {
      const lock_guard guard(lock_);
      value_ = v;
      filled_ = true;
      waiter* const w = std::exchange(taker_, nullptr);
      if (w != nullptr && w->claim(its_ticket_, outcome::value)) ended = w;
    }
    if (ended != nullptr) ended->deliver();
  }

 private:
  void take_out(const waiter& w) {
    const lock_guard guard(lock_);
    if (taker_ == &w) taker_ = nullptr;
  }

  spinlock lock_{lock_rank::fiber_join};
  waiter* taker_ = nullptr;
  ticket its_ticket_ = 0;
  bool filled_ = false;
  int value_ = 0;
};

// A wait that is found without a lock, by its ticket alone, as a timer's.
class alarm_clock {
 public:
  void sleep() {
    fiber& self = *current_fiber();
    who_ = &self.self;
    brought_ = 0;
    const ticket t = self.self.open(false);
    set_.store(t, std::memory_order_release);
    const outcome how =
        vigil::detail::wait(self, t, wait_reason::sleep, vigil::detail::no_limit, false);
    model::require(how == outcome::timeout, "a fiber goes on only when its wait is over");
    model::require(brought_ == 7, "what was written before ready() is seen after park()");
  }

  void ring() {
    model::wait_until([this] { return set_.load(std::memory_order_relaxed) != 0; });
    const ticket t = set_.fetch_add(0, std::memory_order_acquire);  // the newest
    model::require(who_->claim(t, outcome::timeout), "nobody else claims it");
    brought_ = 7;
    who_->deliver();
  }

 private:
  std::atomic<ticket> set_{0};
  waiter* who_ = nullptr;
  int brought_ = 0;
};

// Whether the fiber's stack, with its control block, has been given back.
bool is_gone(const fiber* f) {
  return f != nullptr && model::freed_memory(f);
}

// A result that counts how many of its kind there are.
class counted {
 public:
  explicit counted(std::atomic<int>& n) : n_(&n) { n_->fetch_add(1); }

  counted(const counted& other) : n_(other.n_) { n_->fetch_add(1); }

  counted& operator=(const counted&) = delete;

  ~counted() { n_->fetch_sub(1); }

 private:
  std::atomic<int>* n_;
};

// A fiber that is in its last lines on the other worker: it ends once the gate
// is open.
template <class F>
auto about_to_end(gate& g, F&& f) {
  auto handle = vigil::spawn([&g, f = std::forward<F>(f)] {
    g.enter();
    return f();
  });
  g.await();
  return handle;
}

}  // namespace

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

TEST_CASE("park: a fiber parks with a lock, and the next owner of the lock readies it") {
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
  // The main fiber is pinned; this one is not.
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
      auto f = vigil::spawn([&] {
        const vigil::this_fiber::pin p;
        return its.take();
      });
      vigil::sleep_for(1ms);  // it waits
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
  // With clock and timer fiber: timer_claim_test.cpp. Here is only what firing
  // does to a sleeper: it claims the ticket, without a lock, and delivers.
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
            return counted(alive);
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
        return counted(results);
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
      auto behind = vigil::spawn([] {});  // for which it yields
      g.open();                           // the other worker looks for work
      f.join();
      model::require(turns == 2, "each turn is done once");
      behind.join();
      other.join();
    });
  });
}

TEST_CASE("park: two readied in a row: what goes next, what goes behind it, and a thief") {
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

TEST_CASE("park: what goes next here is taken by its worker or by a thief") {
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
