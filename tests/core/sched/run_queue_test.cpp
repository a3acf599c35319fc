#include "core/sched/queue/run_queue.hpp"

#include "support/in_runtime.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

using namespace vigil::testing_support;
using vigil::detail::run_queue;

namespace {

// The queue follows no pointer, so numbers stand in for fibers.
vigil::detail::fiber* as_fiber(std::uintptr_t n) {
  return reinterpret_cast<vigil::detail::fiber*>(n * 16);
}

std::uintptr_t as_number(vigil::detail::fiber* f) {
  return reinterpret_cast<std::uintptr_t>(f) / 16;
}

bool push(run_queue& q, std::uintptr_t n) {
  return q.push(*as_fiber(n));
}

}  // namespace

TEST_SUITE("run_queue") {
  TEST_CASE("first in, first out, even around the end of the ring") {
    run_queue q;
    CHECK(q.empty());
    CHECK(q.pop() == nullptr);
    std::uintptr_t in = 1;
    std::uintptr_t out = 1;
    for (int round = 0; round < 1000; ++round) {
      for (int i = 0; i < round % 7; ++i)
        REQUIRE(push(q, in++));
      CHECK(q.empty() == (in == out));
      for (int i = 0; i < round % 7; ++i)
        REQUIRE(as_number(q.pop()) == out++);
      CHECK(q.empty());
    }
  }

  TEST_CASE("takes capacity fibers and refuses one more") {
    run_queue q;
    for (std::uintptr_t i = 1; i <= run_queue::capacity; ++i)
      REQUIRE(push(q, i));
    CHECK_FALSE(push(q, 1000));
    CHECK(as_number(q.pop()) == 1);
    CHECK(push(q, 1000));
    CHECK_FALSE(push(q, 1001));
  }

  TEST_CASE("grab takes the older half, one of one, and no more than there is room for") {
    run_queue q;
    vigil::detail::fiber* into[run_queue::capacity];
    CHECK(q.grab(into, run_queue::capacity) == 0);
    for (std::uintptr_t i = 1; i <= 9; ++i)
      push(q, i);
    CHECK(q.grab(into, run_queue::capacity) == 5);
    for (std::uintptr_t i = 0; i < 5; ++i)
      CHECK(as_number(into[i]) == i + 1);
    CHECK(q.grab(into, 1) == 1);
    CHECK(as_number(into[0]) == 6);
    CHECK(q.grab(into, 100) == 2);
    CHECK(q.grab(into, 100) == 1);
    CHECK(as_number(into[0]) == 9);
    CHECK(q.empty());
    CHECK(q.grab(into, 100) == 0);
  }

  TEST_CASE("owner and thieves take each fiber exactly once") {
    run_queue q;
    const auto total = static_cast<std::uintptr_t>(rounds(400'000));
    std::vector<std::atomic<unsigned char>> taken(total + 1);
    std::atomic<std::uintptr_t> count{0};
    const auto take = [&](vigil::detail::fiber* f) {
      taken[as_number(f)].fetch_add(1);
      count.fetch_add(1);
    };
    std::atomic<bool> done{false};
    std::vector<std::thread> thieves;
    for (int i = 0; i < 2; ++i) {
      thieves.emplace_back([&, i] {
        vigil::detail::fiber* into[run_queue::capacity / 2];
        std::uintptr_t last = 0;
        while (!done.load() || !q.empty()) {
          const std::uint32_t n = q.grab(into, i == 0 ? run_queue::capacity / 2 : 3);
          for (std::uint32_t k = 0; k < n; ++k) {
            // Each taker sees the fibers in the order in which they were added.
            if (as_number(into[k]) <= last) std::abort();
            last = as_number(into[k]);
            take(into[k]);
          }
          if (n == 0) std::this_thread::yield();
        }
      });
    }
    seeded dice(7);
    for (std::uintptr_t next = 1; next <= total;) {
      for (std::uint32_t burst = dice.below(20); burst > 0 && next <= total; --burst) {
        if (!push(q, next)) break;
        ++next;
      }
      for (std::uint32_t burst = dice.below(12); burst > 0; --burst) {
        if (vigil::detail::fiber* const f = q.pop()) take(f);
      }
    }
    done.store(true);
    while (vigil::detail::fiber* const f = q.pop())
      take(f);
    for (auto& t : thieves)
      t.join();
    CHECK(count.load() == total);
    bool once = true;
    for (std::uintptr_t i = 1; i <= total; ++i)
      once = once && taken[i].load() == 1;
    CHECK(once);
  }
}
