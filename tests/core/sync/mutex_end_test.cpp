// mutex: deadlines, stops, the shutdown and deadlocks of waits for it.
#include "core/sync/sync_test.hpp"
#include "support/child.hpp"

#include <mutex>

using namespace vigil::testing_support;
using vigil::mutex;

TEST_SUITE("mutex") {
  TEST_CASE("a timed lock gives up at exactly its deadline, and gets it if it is free before") {
    in_virtual([] {
      mutex m;
      m.lock();
      auto in_vain = spawn([&] {
        const auto start = clock::now();
        CHECK_FALSE(m.try_lock_for(10ms));
        CHECK(since(start) == 10ms);
        CHECK_FALSE(m.try_lock_until(clock::now() + 5ms));
        CHECK(since(start) == 15ms);
        CHECK_FALSE(m.try_lock_for(0ms));
        CHECK_FALSE(m.try_lock_for(-1h));
        CHECK_FALSE(m.try_lock_until(start));
        CHECK(since(start) == 15ms);
      });
      auto in_time = spawn([&] {
        const auto start = clock::now();
        CHECK(m.try_lock_for(1h));
        CHECK(since(start) == 20ms);
        m.unlock();
      });
      auto at_any_time = spawn([&] {
        CHECK(m.try_lock_for(std::chrono::hours::max()));
        m.unlock();
      });
      sleep_for(20ms);
      m.unlock();
      in_vain.join();
      in_time.join();
      at_any_time.join();
      CHECK(m.try_lock_for(-1h));  // the mutex is free: like try_lock
      m.unlock();
    });
  }

  TEST_CASE("a waiter that gives up does not block those behind it") {
    for_each_seed(10, [] {
      mutex m;
      m.lock();
      auto first = spawn([&] { CHECK_FALSE(m.try_lock_for(1ms)); });
      settle();
      bool had = false;
      auto second = spawn([&] {
        const std::lock_guard lock(m);
        had = true;
      });
      sleep_for(2ms);
      m.unlock();
      second.join();
      first.join();
      CHECK(had);
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("a stop does not end the wait for it: the lock is taken, and the next wait throws") {
    in_virtual([] {
      mutex m;
      m.lock();
      bool had = false;
      bool stopped = false;
      auto f = spawn([&] {
        {
          const std::lock_guard lock(m);
          had = true;
        }
        try {
          sleep_for(1ms);
        } catch (const vigil::stopped&) {
          stopped = true;
          throw;
        }
      });
      settle();
      f.request_stop();
      sleep_for(5ms);
      CHECK_FALSE(had);
      m.unlock();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(had);
      CHECK(stopped);
    });
  }

  TEST_CASE("a fiber that was asked to stop before may still lock it") {
    in_virtual([] {
      mutex m;
      m.lock();
      bool had = false;
      auto f = spawn([&] {
        const std::lock_guard lock(m);
        had = true;
      });
      f.request_stop();
      settle();
      m.unlock();
      f.join();
      CHECK(had);
    });
  }

  TEST_CASE("the shutdown unwinds its owner, and a waiter has it then") {
    std::vector<int> freed;
    in_virtual([&] {
      static mutex m;
      vigil::go([&] {
        const std::lock_guard lock(m);
        sleep_for(1h);
      });
      vigil::go([&] {
        const std::lock_guard lock(m);
        freed.push_back(1);
        sleep_for(1h);
      });
      vigil::go([&] {
        const std::lock_guard lock(m);
        freed.push_back(2);
      });
      settle();
    });
    CHECK(freed.size() == 2);
  }

  TEST_CASE("child: lock under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      mutex m;
      m.lock();
      const vigil::this_fiber::no_park guard;
      m.lock();
    });
  }

  TEST_CASE("waiting for it under no_park ends the program and says why") {
    const child_result r = run_child("child: lock under no_park");
    CHECK_FALSE(r.succeeded());
    CHECK(r.says("no_park"));
  }

  TEST_CASE("child: locked twice" * doctest::skip()) {
    vigil::options o;
    // ThreadSanitizer has a thread of its own, so `automatic` would only warn.
    o.deadlock = vigil::on_deadlock::fatal;
    o.workers = 1;
    CHECK_THROWS_AS(vigil::run(o,
                               [] {
                                 mutex m;
                                 m.lock();
                                 m.lock();
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("locking it twice is a deadlock, and the report shows the waiting fiber") {
    const child_result r = run_child("child: locked twice");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("[parked: mutex, "));  // in the dump of the deadlock
  }
}
