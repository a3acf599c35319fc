// The spinlock: one holder at a time, and each sees everything the one before has done.
#include "core/base/spinlock.hpp"

#include "core/sched/wait/note.hpp"
#include "prove.hpp"

#include <atomic>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::lock_guard;
using vigil::detail::lock_rank;
using vigil::detail::note;
using vigil::detail::spinlock;

namespace {

struct guarded_count {
  spinlock lock{lock_rank::records};
  int count VIGIL_GUARDED_BY(lock) = 0;  // plain: two at once are a data race

  void add() {
    const lock_guard guard(lock);
    ++count;
  }

  bool try_add() {
    if (!lock.try_lock()) return false;
    ++count;
    lock.unlock();
    return true;
  }

  int read() {
    const lock_guard guard(lock);
    return count;
  }
};

}  // namespace

TEST_CASE("spinlock: two threads that lock twice never meet inside") {
  prove(
      "spinlock: two threads, twice each",
      [] {
        const auto c = std::make_unique<guarded_count>();
        const auto twice = [&] {
          c->add();
          c->add();
        };
        std::thread other(twice);
        twice();
        other.join();
        model::require(c->read() == 4, "nothing is lost");
      },
      also::unbounded);
}

TEST_CASE("spinlock: three threads never meet inside") {
  prove(
      "spinlock: three threads",
      [] {
        const auto c = std::make_unique<guarded_count>();
        std::thread first([&] { c->add(); });
        std::thread second([&] { c->add(); });
        c->add();
        first.join();
        second.join();
        model::require(c->read() == 3, "nothing is lost");
      },
      also::unbounded);
}

TEST_CASE("spinlock: try_lock() gets only a free lock, and sees its owner's writes") {
  prove(
      "spinlock: try_lock against lock",
      [] {
        const auto c = std::make_unique<guarded_count>();
        bool got = false;
        std::thread trier([&] { got = c->try_add(); });
        c->add();
        trier.join();
        model::require(c->read() == (got ? 2 : 1), "counted if and only if it was got");
        model::require(c->try_add(), "a free lock is got");
      },
      also::unbounded);
  prove(
      "spinlock: try_lock by two, lock by a third",
      [] {
        const auto c = std::make_unique<guarded_count>();
        std::atomic<int> got{0};
        const auto attempt = [&] {
          if (c->try_add()) got.fetch_add(1);
        };
        std::thread first(attempt);
        std::thread second(attempt);
        c->add();
        first.join();
        second.join();
        model::require(c->read() == 1 + got.load(), "counted if and only if it was got");
      },
      also::unbounded);
}

TEST_CASE("spinlock: a long waiter yields its processor, and gets the lock in the end") {
  prove(
      "spinlock: spins, then yields",
      [] {
        const auto c = std::make_unique<guarded_count>();
        const auto n = std::make_unique<note>();
        std::atomic<bool> taken{false};
        std::thread holder([&] {
          const lock_guard guard(c->lock);
          taken.store(true);
          // Its processor is taken away: the other thread spins, and then yields.
          n->sleep_until(model::now() + 1000);
          ++c->count;
        });
        model::wait_until([&] { return taken.load(std::memory_order_relaxed); });
        c->add();
        holder.join();
        model::require(c->read() == 2, "nothing is lost");
      },
      also::unbounded);
}
