#include "core/sched/idle/idle.hpp"

#include "core/base/clock_source.hpp"
#include "core/sched/sleepers.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <thread>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

TEST_SUITE("idle_workers") {
  // Node, libuv: poll timeout: no kernel sleep while there is work, none without
  // timers.
  TEST_CASE("the first sleeps to the next deadline, a deputy to the second, others for ever") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    sleeper c;
    lie(idle, a, 100, 200'000);
    lie(idle, b, 100, 200'000);
    lie(idle, c, 100, 200'000);
    CHECK(a.until == 100);
    CHECK(b.until == 200'000);
    CHECK(c.until == never);
    CHECK(a.asleep_in == &watch);
    CHECK(b.asleep_in == nullptr);
    CHECK(c.asleep_in == nullptr);
    CHECK(idle.asleep() == 3);
    CHECK(idle.looking() == 0);
    CHECK(idle.earliest() == 100);
    for (sleeper* const s : {&a, &b, &c})
      idle.stay_awake(*s);
    CHECK(idle.asleep() == 0);
    CHECK(idle.looking() == 3);
    CHECK(idle.earliest() == idle_workers::nobody_sleeps);
  }

  // Node, libuv: poll timeout: no kernel sleep while there is work, none without
  // timers.
  TEST_CASE("without a deadline no worker sleeps to one") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    lie(idle, a, never, never);
    lie(idle, b, never, never);
    CHECK(a.until == never);
    CHECK(b.until == never);
    CHECK(idle.earliest() == never);
    idle.stay_awake(a);
    idle.stay_awake(b);
  }

  TEST_CASE("wake_one takes the sleeper whose sleep matters least") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    sleeper c;
    lie(idle, a, 100, 200'000);
    lie(idle, b, 100, 200'000);
    lie(idle, c, 100, 200'000);
    idle.wake_one();
    CHECK_FALSE(c.hook.linked);
    CHECK(idle.asleep() == 2);
    CHECK(idle.looking() == 1);
    idle.wake_one();  // somebody is already looking
    CHECK(idle.asleep() == 2);
    idle.stop_looking();
    idle.wake_one();
    CHECK_FALSE(b.hook.linked);
    CHECK(a.hook.linked);
    idle.stop_looking();
    idle.wake_all();
    CHECK(idle.asleep() == 0);
  }

  TEST_CASE("cover makes sure that some worker sleeps no longer than to the deadline") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    lie(idle, a, 100, 200);
    lie(idle, b, 100, 200);
    idle.cover(150);  // a wakes before that anyway
    CHECK(idle.asleep() == 2);
    idle.cover(50);
    CHECK(idle.asleep() == 1);
    CHECK(a.hook.linked);  // the earlier one stays, as the deputy
    idle.stay_awake(b);
    idle.lie_down(b, 50, 100);
    CHECK(b.until == 50);
    CHECK(idle.earliest() == 50);
    idle.stay_awake(a);
    idle.stay_awake(b);
  }

  TEST_CASE("cover wakes no worker if none is asleep or one is looking") {
    futex_watch watch;
    idle_workers idle(watch);
    idle.cover(5);
    sleeper a;
    lie(idle, a, never, never);
    idle.start_looking();
    idle.cover(5);
    CHECK(idle.asleep() == 1);
    CHECK(idle.wake_calls() == 0);
    idle.stop_looking();
    idle.cover(5);
    CHECK(idle.asleep() == 0);
  }

  TEST_CASE("a sleeper that was woken returns, in the watch or on its note") {
    futex_watch watch;
    idle_workers idle(watch);
    std::atomic<int> awake{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        sleeper s;
        lie(idle, s, monotonic_now() + hour, monotonic_now() + 2 * hour);
        idle.sleep(s);
        awake.fetch_add(1);
        idle.stop_looking();
      });
    }
    while (idle.asleep() != 3)
      std::this_thread::yield();
    for (int n = 1; n <= 3; ++n) {
      while (idle.looking() != 0)
        std::this_thread::yield();
      idle.wake_one();
      while (awake.load() != n)
        std::this_thread::yield();
    }
    for (auto& t : threads)
      t.join();
    CHECK(idle.asleep() == 0);
    CHECK(idle.looking() == 0);
  }

  // Node, libuv: poll timeout: no kernel sleep while there is work, none without timers.
  TEST_CASE("a deadline ends the sleep, never early") {
    futex_watch watch;
    idle_workers idle(watch);
    for (int i = 0; i < 20; ++i) {
      sleeper s;
      const nanos deadline = monotonic_now() + i * 50'000;
      lie(idle, s, deadline, never);
      idle.sleep(s);
      CHECK(monotonic_now() >= deadline);
      CHECK(idle.stop_looking());
    }
  }

  TEST_CASE("a free watch is taken over by a sleeper, unless a worker is looking") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    idle.staff_watch();  // nobody sleeps
    lie(idle, a, never, never);
    lie(idle, b, never, never);
    idle.staff_watch();  // a is there
    CHECK(idle.asleep() == 2);
    CHECK(idle.wake_calls() == 0);
    idle.wake(a);
    idle.stay_awake(a);
    idle.staff_watch();  // a looks, and goes back if it finds nothing
    CHECK(idle.asleep() == 1);
    idle.stop_looking();  // a has found something
    idle.staff_watch();
    CHECK(idle.looking() == 1);  // b is roused
    idle.stay_awake(b);
    idle.lie_down(b, never, never);
    CHECK(b.asleep_in == &watch);
    idle.stay_awake(b);
    idle.stop_looking();
  }

  // Asio: wake-up lost while the waiting place changes.
  TEST_CASE("when the watch changes its sleeper comes out, and the next one lies down in the new") {
    futex_watch first;
    futex_watch second;
    idle_workers idle(first);
    sleeper a;
    sleeper b;
    lie(idle, a, never, never);
    lie(idle, b, never, never);
    std::thread sleeps([&] { idle.sleep(a); });
    idle.change_watch(second);
    sleeps.join();
    CHECK(idle.asleep() == 0);  // both look for the new one
    idle.stay_awake(b);
    idle.lie_down(a, never, never);
    CHECK(a.asleep_in == &second);
    std::thread sleeps_again([&] { idle.sleep(a); });
    idle.wake(a);
    sleeps_again.join();
    CHECK(idle.looking() == 2);
  }

  // Node, libuv: poll timeout: no kernel sleep while there is work, none without
  // timers.
  TEST_CASE("additions that race lying down are never lost") {
    // The protocol at the head of idle.hpp, with one counter as the queue.
    futex_watch watch;
    idle_workers idle(watch);
    std::atomic<int> work{0};
    std::atomic<int> done{0};
    const int total = rounds(100'000);
    const auto take = [&] {
      int n = work.load();
      while (n > 0) {
        if (work.compare_exchange_weak(n, n - 1)) return true;
      }
      return false;
    };
    std::vector<std::thread> workers;
    for (int i = 0; i < 2; ++i) {
      workers.emplace_back([&] {
        sleeper s;
        idle.start_looking();
        while (done.load() < total) {
          if (take()) {
            if (idle.stop_looking() && work.load() > 0) idle.wake_one();
            if (done.fetch_add(1) + 1 == total) idle.wake_all();
            idle.start_looking();
            continue;
          }
          idle.lie_down(s, never, never);
          if (work.load() > 0 || done.load() >= total) {
            idle.stay_awake(s);
          } else {
            idle.sleep(s);
          }
        }
        idle.stop_looking();
        idle.wake_all();
      });
    }
    for (int i = 0; i < total; ++i) {
      work.fetch_add(1);
      idle.wake_one();
      if (i % 64 == 0) std::this_thread::yield();
    }
    for (auto& t : workers)
      t.join();
    CHECK(done.load() == total);
  }
}
