#include "core/sync/sync_test.hpp"

#include <mutex>
#include <shared_mutex>

using namespace vigil::testing_support;
using vigil::shared_mutex;

TEST_SUITE("shared_mutex") {
  // Go: RWMutex: readers parallel.
  TEST_CASE("readers are inside together, a writer alone") {
    in_virtual([] {
      shared_mutex m;
      const auto start = clock::now();
      crowd all;
      for (int i = 0; i < 10; ++i) {
        all.add([&] {
          const std::shared_lock lock(m);
          sleep_for(10ms);
        });
      }
      all.join();
      CHECK(since(start) == 10ms);
      for (int i = 0; i < 10; ++i) {
        all.add([&] {
          const std::lock_guard lock(m);
          sleep_for(10ms);
        });
      }
      all.join();
      CHECK(since(start) == 110ms);
    });
  }

  // Go: RWMutex: HammerRWMutex, TryRLock.
  TEST_CASE("in any mix of fibers and threads a writer is always alone") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      shared_mutex m;
      std::atomic<int> readers{0};
      std::atomic<int> writers{0};
      long written = 0;
      std::atomic<long> writes{0};
      const auto work = [&](std::uint64_t seed) {
        seeded dice(seed);
        for (int i = 0; i < rounds(2'000); ++i) {
          const auto patience = std::chrono::microseconds(dice.below(30));
          const std::uint32_t kind = dice.below(8);
          const bool writes_here = kind < 3;
          bool inside = true;
          if (kind == 0) {
            m.lock();
          } else if (kind == 1) {
            inside = m.try_lock();
          } else if (kind == 2) {
            inside = m.try_lock_for(patience);
          } else if (kind == 3) {
            inside = m.try_lock_shared();
          } else if (kind == 4) {
            inside = m.try_lock_shared_for(patience);
          } else {
            m.lock_shared();
          }
          if (!inside) continue;
          (writes_here ? writers : readers).fetch_add(1);
          CHECK(writers.load() <= 1);
          CHECK((writers.load() == 0 || readers.load() == 0));
          if (writes_here) {
            ++written;
            writes.fetch_add(1);
          }
          if (dice.below(8) == 0 && vigil::this_fiber::id() != 0) vigil::this_fiber::yield();
          (writes_here ? writers : readers).fetch_sub(1);
          writes_here ? m.unlock() : m.unlock_shared();
        }
      };
      crowd all;
      for (std::uint64_t i = 0; i < 6; ++i)
        all.add([&, i] { work(i + 1); });
      std::thread outside([&] { work(100); });
      all.join();
      outside.join();
      CHECK(written == writes.load());
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  // Go: RWMutex: a waiting writer keeps new readers out; readers go after a
  // writer.
  TEST_CASE("a waiting writer keeps new readers out, and comes next") {
    in_virtual([] {
      shared_mutex m;
      m.lock_shared();
      std::vector<char> order;
      crowd all;
      all.add([&] {
        const std::lock_guard lock(m);
        order.push_back('w');
      });
      settle();
      all.add([&] {
        CHECK_FALSE(m.try_lock_shared());
        const std::shared_lock lock(m);
        order.push_back('r');
      });
      settle();
      CHECK(order.empty());
      m.unlock_shared();
      all.join();
      CHECK(order == std::vector{'w', 'r'});
    });
  }

  // Go: RWMutex: a waiting writer keeps new readers out; readers go after a
  // writer.
  TEST_CASE("all readers waiting when a writer leaves go before the next writer") {
    in_virtual([] {
      shared_mutex m;
      m.lock();
      std::vector<char> order;
      crowd all;
      const auto add = [&](char kind) {
        all.add([&, kind] {
          if (kind == 'w') {
            const std::lock_guard lock(m);
            order.push_back('w');
            sleep_for(1ms);
          } else {
            const std::shared_lock lock(m);
            order.push_back('r');
            sleep_for(1ms);
          }
        });
        settle();
      };
      for (const char kind : {'r', 'w', 'r', 'w', 'r'})
        add(kind);
      const auto start = clock::now();
      m.unlock();
      all.join();
      CHECK(order == std::vector{'r', 'r', 'r', 'w', 'w'});
      CHECK(since(start) == 3ms);
    });
  }

  // Go: RWMutex: a waiting writer keeps new readers out; readers go after a
  // writer.
  TEST_CASE("neither side starves the other, although both come back at once") {
    in_virtual([] {
      shared_mutex m;
      int reads = 0;
      int writes = 0;
      crowd all;
      const auto end = clock::now() + 100ms;
      for (int i = 0; i < 4; ++i) {
        all.add([&] {
          while (clock::now() < end) {
            const std::shared_lock lock(m);
            sleep_for(1ms);
            ++reads;
          }
        });
        all.add([&] {
          while (clock::now() < end) {
            const std::lock_guard lock(m);
            sleep_for(1ms);
            ++writes;
          }
        });
      }
      all.join();
      CHECK(reads >= 100);
      CHECK(writes >= 40);
    });
  }

  TEST_CASE("a timed lock of either kind gives up at exactly its deadline") {
    in_virtual([] {
      shared_mutex m;
      m.lock();
      auto f = spawn([&] {
        const auto start = clock::now();
        CHECK_FALSE(m.try_lock_for(10ms));
        CHECK_FALSE(m.try_lock_shared_for(10ms));
        CHECK_FALSE(m.try_lock_until(start + 25ms));
        CHECK_FALSE(m.try_lock_shared_until(start + 30ms));
        CHECK(since(start) == 30ms);
        CHECK_FALSE(m.try_lock_for(0ms));
        CHECK_FALSE(m.try_lock_shared_for(-1ms));
        CHECK(since(start) == 30ms);
      });
      f.join();
      m.unlock();
      CHECK(m.try_lock_shared_for(-1ms));
      CHECK(m.try_lock_shared_for(0ms));
      CHECK_FALSE(m.try_lock_for(0ms));
      m.unlock_shared();
      m.unlock_shared();
      CHECK(m.try_lock_for(0ms));
      m.unlock();
    });
  }

  TEST_CASE("a writer that gives up lets the readers behind it in at once") {
    in_virtual([] {
      shared_mutex m;
      m.lock_shared();
      auto writer = spawn([&] { CHECK_FALSE(m.try_lock_for(10ms)); });
      settle();
      const auto start = clock::now();
      auto reader = spawn([&] {
        const std::shared_lock lock(m);
        CHECK(since(start) == 10ms);
      });
      reader.join();
      writer.join();
      m.unlock_shared();
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  // Go: RWMutex: misuse.
  TEST_CASE("unlocking a lock that is not held throws and names the intended call") {
    shared_mutex m;
    CHECK(holds(text_of<std::logic_error>([&] { m.unlock(); }), "no writer"));
    CHECK(holds(text_of<std::logic_error>([&] { m.unlock_shared(); }), "no reader"));
    m.lock();
    CHECK_THROWS_AS(m.unlock_shared(), std::logic_error);
    m.unlock();
    m.lock_shared();
    CHECK_THROWS_AS(m.unlock(), std::logic_error);
    m.unlock_shared();
    CHECK(m.try_lock());
    m.unlock();
  }

  TEST_CASE("a stop ends neither kind of wait") {
    in_virtual([] {
      shared_mutex m;
      m.lock();
      int had = 0;
      auto writer = spawn([&] {
        const std::lock_guard lock(m);
        ++had;
      });
      auto reader = spawn([&] {
        const std::shared_lock lock(m);
        ++had;
      });
      settle();
      writer.request_stop();
      reader.request_stop();
      settle();
      CHECK(had == 0);
      m.unlock();
      writer.join();
      reader.join();
      CHECK(had == 2);
    });
  }

  TEST_CASE("may be destroyed by the last one inside, while the one before returns") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      for (int i = 0; i < rounds(2'000); ++i) {
        auto* const m = new shared_mutex;
        m->lock_shared();
        auto other = spawn([m] {
          m->lock();
          m->unlock();
          delete m;
        });
        if (i % 2 == 0) vigil::this_fiber::yield();
        m->unlock_shared();
        other.join();
      }
    });
  }
}
