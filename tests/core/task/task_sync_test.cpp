// Tasks at locks, permits, counts, groups and fibers.
#include "core/task/task_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("task: sync") {
  TEST_CASE("one task or fiber at a time holds a mutex") {
    for_each_seed(10, [] {
      vigil::mutex m;
      int inside = 0;
      int rounds_done = 0;
      const auto locks = [&]() -> task<> {
        for (int i = 0; i < 5; ++i) {
          const auto own = co_await co::lock(m);
          CHECK(own.owns_lock());
          CHECK(++inside == 1);
          co_await co::sleep_for(1ms);
          --inside;
          ++rounds_done;
        }
      };
      std::vector<task_handle<>> all;
      for (int i = 0; i < 4; ++i)
        all.push_back(spawn(locks()));
      for (int i = 0; i < 5; ++i) {
        const std::lock_guard own(m);
        CHECK(++inside == 1);
        vigil::sleep_for(1ms);
        --inside;
      }
      for (auto& t : all)
        t.join();
      CHECK(rounds_done == 20);
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("a stop ends the wait for a lock, and leaves the lock free") {
    in_virtual([] {
      vigil::mutex m;
      vigil::shared_mutex s;
      vigil::semaphore permits(0);
      m.lock();
      s.lock();
      const auto check = [](task<> waits) {
        auto t = spawn(std::move(waits));
        settle();
        t.request_stop();
        CHECK_THROWS_AS(t.join(), vigil::cancelled);
      };
      const auto locks = [&]() -> task<> { const auto own = co_await co::lock(m); };
      const auto writes = [&]() -> task<> { const auto own = co_await co::lock(s); };
      const auto reads = [&]() -> task<> { const auto own = co_await co::lock_shared(s); };
      const auto acquires = [&]() -> task<> { const auto own = co_await co::acquire(permits, 2); };
      check(locks());
      check(writes());
      check(reads());
      check(acquires());
      m.unlock();
      s.unlock();
      CHECK(m.try_lock());
      m.unlock();
      CHECK(s.try_lock_shared());
      s.unlock_shared();
      permits.release(1);
      CHECK(permits.try_acquire());
    });
  }

  TEST_CASE("readers share, writers do not") {
    in_virtual([] {
      vigil::shared_mutex m;
      int readers = 0;
      int most = 0;
      const auto reads = [&]() -> task<> {
        const auto own = co_await co::lock_shared(m);
        most = std::max(most, ++readers);
        co_await co::sleep_for(1ms);
        --readers;
      };
      const auto writes = [&]() -> task<> {
        const auto own = co_await co::lock(m);
        CHECK(readers == 0);
        co_await co::sleep_for(1ms);
        CHECK(readers == 0);
      };
      std::vector<task_handle<>> all;
      for (int i = 0; i < 3; ++i)
        all.push_back(spawn(reads()));
      all.push_back(spawn(writes()));
      for (int i = 0; i < 3; ++i)
        all.push_back(spawn(reads()));
      for (auto& t : all)
        t.join();
      CHECK(most >= 3);
    });
  }

  TEST_CASE("permits are given back at the end of the scope, and first come, first served") {
    in_virtual([] {
      vigil::semaphore permits(2);
      const auto start = clock::now();
      const auto works = [&](std::int64_t n) -> task<> {
        const auto own = co_await co::acquire(permits, n);
        co_await co::sleep_for(1ms);
      };
      std::vector<task_handle<>> all;
      for (const std::int64_t n : {1, 2, 1, 1})
        all.push_back(spawn(works(n)));
      for (auto& t : all)
        t.join();
      CHECK(since(start) == 3ms);
      CHECK(permits.available() == 2);
    });
  }

  TEST_CASE("counts and groups") {
    in_virtual([] {
      const auto start = clock::now();
      vigil::wait_group count;
      count.add(2);
      vigil::latch gate(1);
      vigil::group_of<int> squares;
      for (int i = 1; i <= 3; ++i)
        squares.go([i] {
          vigil::sleep_for((4 - i) * 1ms);
          return i * i;
        });
      vigil::group plain;
      plain.go([] { vigil::sleep_for(4ms); });
      const auto waits = [&]() -> task<> {
        co_await co::wait(count);
        CHECK(since(start) == 2ms);
        co_await co::wait(gate);
        CHECK((co_await co::next(squares)) == 9);
        CHECK((co_await co::next(squares)) == 4);
        const std::vector<int> left = co_await co::wait(squares);
        CHECK(left.size() == 1);
        CHECK(left[0] == 1);
        CHECK(since(start) == 3ms);
        co_await co::wait(plain);
        CHECK(since(start) == 4ms);
      };
      auto t = spawn(waits());
      gate.count_down();
      for (int i = 0; i < 2; ++i) {
        vigil::sleep_for(1ms);
        count.done();
      }
      t.join();
    });
  }

  TEST_CASE("a group's error comes out of co_await") {
    in_virtual([] {
      const auto waits = []() -> task<> {
        vigil::group g;
        g.go([] { throw std::runtime_error("first"); });
        co_await co::wait(g);
      };
      CHECK_THROWS_WITH(spawn(waits()).join(), "first");
    });
  }

  TEST_CASE("a task waits for a fiber, and gets its result or its exception") {
    in_virtual([] {
      const auto waits = []() -> task<int> {
        auto f = spawn([] {
          vigil::sleep_for(1ms);
          return 5;
        });
        const int five = co_await co::join(f);
        CHECK_FALSE(f.joinable());
        auto nothing = spawn([] { vigil::sleep_for(1ms); });
        co_await co::join(nothing);
        auto fails = spawn([] { throw std::runtime_error("bad"); });
        try {
          co_await co::join(fails);
        } catch (const std::runtime_error&) {
          co_return five + 1;
        }
        co_return 0;
      };
      CHECK(spawn(waits()).join() == 6);
    });
  }

  TEST_CASE("the end of a context, and waits under one") {
    in_virtual([] {
      const auto start = clock::now();
      auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 5ms);
      vigil::mutex m;
      m.lock();
      spawn([](vigil::context c) -> task<> { co_await co::done(c); }(ctx)).join();
      CHECK(since(start) == 5ms);
      const auto locks = [&, ctx = ctx]() -> task<> { const auto own = co_await co::lock(m, ctx); };
      CHECK_THROWS_AS(spawn(locks()).join(), vigil::cancelled);
      m.unlock();
    });
  }

  TEST_CASE("select over cases of every kind") {
    in_virtual([] {
      vigil::mutex m;
      m.lock();
      vigil::semaphore permits(0);
      auto t = spawn([](vigil::mutex& lock, vigil::semaphore& s) -> task<std::size_t> {
        auto f = spawn([] { vigil::sleep_for(1h); });
        bool has_lock = false;
        const std::size_t taken = co_await co::select(
            vigil::on_join(f),
            vigil::on_acquire(s),
            vigil::on_lock(lock,
                           [&](std::unique_lock<vigil::mutex> own) { has_lock = own.owns_lock(); }),
            vigil::on_timeout(10ms));
        CHECK(has_lock == (taken == 2));
        co_return taken;
      }(m, permits));
      vigil::sleep_for(3ms);
      m.unlock();
      CHECK(t.join() == 2);
      CHECK(m.try_lock());
      m.unlock();
      permits.release();
      CHECK(permits.try_acquire());
    });
  }
}
