#include "core/sync/sync_test.hpp"
#include "support/child.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <system_error>

using namespace vigil::testing_support;
using vigil::condition_variable;
using vigil::mutex;

namespace {

// Several waiters, each for one notification.
struct waiting_room {
  mutex m;
  condition_variable c;
  std::vector<int> order;
  crowd all;

  void enter(int who) {
    all.add([this, who] {
      std::unique_lock lock(m);
      c.wait(lock);
      CHECK(lock.owns_lock());
      order.push_back(who);
    });
    settle();
  }
};

}  // namespace

TEST_SUITE("condition_variable") {
  // Go: Cond: Signal wakes exactly one of n, in generations (TestCondSignal,
  // -Generations).
  TEST_CASE("notify_one readies exactly one waiter, in the order of arrival") {
    for_each_seed(20, [] {
      waiting_room room;
      for (int i = 0; i < 5; ++i)
        room.enter(i);
      for (int i = 0; i < 5; ++i) {
        CHECK(static_cast<int>(room.order.size()) == i);
        room.c.notify_one();
        settle();
      }
      room.c.notify_one();  // nobody waits: the notification is not kept
      room.all.join();
      CHECK(room.order == std::vector{0, 1, 2, 3, 4});
      room.enter(5);
      settle();
      CHECK(room.order.size() == 5);
      room.c.notify_one();
      room.all.join();
    });
  }

  // Go: Cond: Broadcast wakes all (TestCondBroadcast).
  TEST_CASE("notify_all readies all waiters, and none that comes later") {
    for_each_seed(20, [] {
      waiting_room room;
      for (int i = 0; i < 5; ++i)
        room.enter(i);
      room.c.notify_all();
      room.enter(5);
      CHECK(room.order.size() == 5);
      room.c.notify_all();
      room.all.join();
      CHECK(room.order.size() == 6);
    });
  }

  // Go: Cond: a waiter cannot be robbed by a newcomer (TestCondSignalStealing).
  TEST_CASE("a newcomer cannot take the notification away from a waiter") {
    for_each_seed(20, [] {
      mutex m;
      condition_variable c;
      bool notified = false;
      auto first = spawn([&] {
        std::unique_lock lock(m);
        c.wait(lock);
        notified = true;
      });
      settle();
      bool woken_wrongly = false;
      auto thief = spawn([&] {
        std::unique_lock lock(m);
        c.notify_one();
        woken_wrongly = c.wait_for(lock, 1s);  // queues at the same moment
      });
      thief.join();
      first.join();
      CHECK(notified);
      CHECK_FALSE(woken_wrongly);
    });
  }

  // Go: Cond under load.
  TEST_CASE("a queue between fibers and threads loses no notification") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      mutex m;
      condition_variable filled;
      condition_variable emptied;
      int items = 0;
      std::atomic<int> taken{0};
      const int each = rounds(4'000);
      const auto give = [&] {
        for (int i = 0; i < each; ++i) {
          std::unique_lock lock(m);
          emptied.wait(lock, [&] { return items < 3; });
          ++items;
          filled.notify_one();
        }
      };
      const auto take = [&] {
        for (int i = 0; i < each; ++i) {
          std::unique_lock lock(m);
          filled.wait(lock, [&] { return items > 0; });
          --items;
          taken.fetch_add(1);
          emptied.notify_one();
        }
      };
      crowd all;
      for (int i = 0; i < 3; ++i) {
        all.add(give);
        all.add(take);
      }
      std::thread a(give);
      std::thread b(take);
      all.join();
      a.join();
      b.join();
      CHECK(taken.load() == 4 * each);
      CHECK(items == 0);
    });
  }

  TEST_CASE("a timed wait is false at exactly its deadline, with the lock held") {
    in_virtual([] {
      mutex m;
      condition_variable c;
      std::unique_lock lock(m);
      const auto start = clock::now();
      CHECK_FALSE(c.wait_for(lock, 10ms));
      CHECK(since(start) == 10ms);
      CHECK(lock.owns_lock());
      CHECK_FALSE(m.try_lock());
      CHECK_FALSE(c.wait_until(lock, start + 15ms));
      CHECK_FALSE(c.wait_for(lock, 0ms));
      CHECK_FALSE(c.wait_for(lock, -1h));
      CHECK_FALSE(c.wait_until(lock, start));
      CHECK(since(start) == 15ms);
      CHECK_FALSE(c.wait_for(lock, 5ms, [] { return false; }));
      CHECK_FALSE(c.wait_until(lock, start + 25ms, [] { return false; }));
      CHECK(since(start) == 25ms);
      CHECK(c.wait_for(lock, 5ms, [] { return true; }));
      CHECK(c.wait_for(lock, -5ms, [] { return true; }));
      CHECK(since(start) == 25ms);
      c.notify_all();  // those that gave up have left
    });
  }

  TEST_CASE("a notification in time is true; one for a waiter that gave up goes to the next") {
    in_virtual([] {
      mutex m;
      condition_variable c;
      auto in_vain = spawn([&] {
        std::unique_lock lock(m);
        CHECK_FALSE(c.wait_for(lock, 5ms));
      });
      settle();
      auto in_time = spawn([&] {
        std::unique_lock lock(m);
        CHECK(c.wait_for(lock, 1h));
      });
      sleep_for(10ms);
      c.notify_one();
      in_time.join();
      in_vain.join();
    });
  }

  TEST_CASE("the lock is taken back even when others hold it longer than the timeout") {
    in_virtual([] {
      mutex m;
      condition_variable c;
      const auto start = clock::now();
      auto waiting = spawn([&] {
        std::unique_lock lock(m);
        CHECK_FALSE(c.wait_for(lock, 5ms));
        CHECK(since(start) == 20ms);
      });
      settle();
      m.lock();
      sleep_for(20ms);
      m.unlock();
      waiting.join();
    });
  }

  TEST_CASE("a stop ends the wait with the lock held") {
    in_virtual([] {
      mutex m;
      condition_variable c;
      bool held = false;
      auto f = spawn([&] {
        std::unique_lock lock(m);
        try {
          c.wait(lock);
        } catch (const vigil::stopped&) {
          held = lock.owns_lock() && !m.try_lock();
          throw;
        }
      });
      settle();
      m.lock();  // has to wait for the mutex, and the stop does not end that wait
      f.request_stop();
      sleep_for(5ms);
      CHECK_FALSE(held);
      m.unlock();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(held);
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("a wait for a predicate keeps the context that it began with") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      mutex m;
      condition_variable c;
      auto ctx = vigil::with_timeout(vigil::background(), 1s).ctx;
      auto f = spawn([&] {
        std::unique_lock lock(m);
        c.wait(lock, ctx, [] { return false; });
      });
      settle();
      {
        const std::lock_guard lock(m);
        ctx = vigil::context();
      }
      for (int i = 0; i < 2; ++i) {
        c.notify_all();
        settle();
      }
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("a fiber that was asked to stop before does not release the lock") {
    in_virtual([] {
      mutex m;
      condition_variable c;
      auto f = spawn([&] {
        std::unique_lock lock(m);
        c.wait(lock, [] { return false; });
      });
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("a wait without the lock is refused and leaves nobody behind") {
    in_virtual([] {
      mutex m;
      condition_variable c;
      std::unique_lock lock(m, std::defer_lock);
      CHECK_THROWS_AS(c.wait(lock), std::system_error);
      CHECK(holds(text_of<std::logic_error>([&] { c.wait(m); }), "not locked"));
      c.notify_all();
      c.notify_one();
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("works with a mutex itself and with either side of a shared_mutex") {
    in_virtual([] {
      condition_variable c;
      mutex m;
      vigil::shared_mutex s;
      auto a = spawn([&] {
        m.lock();
        c.wait(m);
        CHECK_FALSE(m.try_lock());
        m.unlock();
      });
      auto b = spawn([&] {
        std::shared_lock lock(s);
        c.wait(lock);
        CHECK(lock.owns_lock());
      });
      auto d = spawn([&] {
        std::unique_lock lock(s);
        c.wait(lock);
        CHECK(lock.owns_lock());
      });
      settle();
      c.notify_all();
      a.join();
      b.join();
      d.join();
      CHECK(s.try_lock());
      s.unlock();
    });
  }

  TEST_CASE("may be destroyed once all were notified, before they have the lock") {
    in_virtual([] {
      mutex m;
      std::optional<condition_variable> c;
      c.emplace();
      crowd all;
      for (int i = 0; i < 3; ++i) {
        all.add([&] {
          std::unique_lock lock(m);
          c->wait(lock);
        });
      }
      settle();
      m.lock();
      c->notify_all();
      c.reset();
      m.unlock();
      all.join();
    });
  }

  // Go: Cond under load.
  TEST_CASE("notifications from several threads with random deadlines: each is received once") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      mutex m;
      condition_variable c;
      int tokens = 0;
      int taken = 0;
      const int wanted = rounds(4'000);
      std::thread giver([&] {
        for (int i = 0; i < wanted; ++i) {
          {
            const std::lock_guard lock(m);
            ++tokens;
          }
          c.notify_one();
        }
      });
      crowd all;
      for (int i = 0; i < 4; ++i) {
        all.add([&, i] {
          seeded dice(static_cast<std::uint64_t>(i) + 1);
          for (;;) {
            std::unique_lock lock(m);
            if (!c.wait_for(lock, std::chrono::microseconds(dice.below(100)), [&] {
                  return tokens > 0 || taken == wanted;
                }))
              continue;
            if (tokens == 0) return;
            --tokens;
            if (++taken == wanted) c.notify_all();
          }
        });
      }
      all.join();
      giver.join();
      CHECK(taken == wanted);
      CHECK(tokens == 0);
    });
  }

  TEST_CASE("a predicate may return any type that an if accepts") {
    for_each_seed(2, [] {
      mutex m;
      condition_variable c;
      std::shared_ptr<int> value;
      const auto giver = spawn([&] {
        const std::lock_guard lock(m);
        value = std::make_shared<int>(1);
        c.notify_all();
      });
      const auto holds = [&] { return value; };
      std::unique_lock lock(m);
      CHECK_FALSE(c.wait_for(lock, 0ns, holds));
      c.wait(lock, holds);
      CHECK(c.wait_until(lock, clock::now(), holds));
    });
  }
}
