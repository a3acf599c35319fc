#include "core/base/spinlock.hpp"

#include "support/child.hpp"

#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace vigil::detail;

TEST_SUITE("spinlock") {
  TEST_CASE("only one thread is inside at a time") {
    spinlock lock(lock_rank::idle);
    long count = 0;  // not atomic: a race is a fault
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20'000; ++i) {
          const lock_guard guard(lock);
          ++count;
        }
      });
    }
    for (auto& t : threads)
      t.join();
    CHECK(count == 80'000);
  }

  TEST_CASE("try_lock does not wait") {
    spinlock lock(lock_rank::idle);
    lock.lock();
    std::thread([&] { CHECK(!lock.try_lock()); }).join();
    lock.unlock();
    std::thread([&] {
      const bool got = lock.try_lock();
      CHECK(got);
      if (got) lock.unlock();
    }).join();
  }

#ifndef NDEBUG
  TEST_CASE("child: takes locks in the wrong order" * doctest::skip()) {
    spinlock low(lock_rank::registry);
    spinlock high(lock_rank::idle);
    const lock_guard second(high);
    const lock_guard first(low);
  }

  TEST_CASE("a lock taken out of order ends a debug build") {
    const auto r = vigil::testing_support::run_child("child: takes locks in the wrong order");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("lock order broken"));
  }
#endif
}
