// wait_group, latch, semaphore, once.
#include "sync_test.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::clock;
using vigil::latch;
using vigil::once;
using vigil::semaphore;
using vigil::sleep_for;
using vigil::spawn;
using vigil::wait_group;
using vigil::testing::settle;

TEST_SUITE("counters with a timeout") {
  TEST_CASE("zero or less only looks, a huge one never comes, a deadline is of any clock") {
    in_virtual([] {
      wait_group group;
      group.add();
      latch closed(1);
      semaphore none(0);
      using std::chrono::nanoseconds;
      const auto start = clock::now();
      for (const nanoseconds d : {0ns, -1ns, nanoseconds::min()}) {
        CHECK_FALSE(group.wait_for(d));
        CHECK_FALSE(closed.wait_for(d));
        CHECK_FALSE(none.acquire_for(d));
      }
      CHECK_FALSE(group.wait_until(start - 1h));
      CHECK_FALSE(closed.wait_until(std::chrono::steady_clock::now() - 1s));
      CHECK_FALSE(none.acquire_until(std::chrono::system_clock::now() - 1s));
      CHECK(since(start) == 0s);
      CHECK_FALSE(closed.wait_until(std::chrono::steady_clock::now() + 1h));
      CHECK(since(start) > 59min);
      CHECK(since(start) <= 1h);

      const auto opener = spawn([&] {
        sleep_for(24h * 365 * 100);
        group.done();
        sleep_for(1h);
        closed.count_down();
        sleep_for(1h);
        none.release();
      });
      CHECK(group.wait_for(std::chrono::hours::max()));
      CHECK(closed.wait_until(clock::time_point::max()));
      CHECK(none.acquire_for(nanoseconds::max()));
      CHECK(since(start) > 24h * 365 * 100);
    });
  }
}

TEST_SUITE("wait_group") {
  TEST_CASE("lets all who wait go on when the last is done, and can be used again") {
    for_each_seed(10, [] {
      wait_group group;
      for (int round = 0; round < 3; ++round) {
        group.add(3);
        crowd all;
        std::atomic<int> through{0};
        for (int i = 0; i < 4; ++i) {
          all.add([&] {
            group.wait();
            ++through;
          });
        }
        for (int i = 0; i < 3; ++i) {
          settle();
          CHECK(through == 0);
          CHECK(group.count() == 3 - i);
          group.done();
        }
        all.join();
        CHECK(through == 4);
        group.wait();  // at once
      }
    });
  }

  TEST_CASE("who waited goes on although more is added as soon as it was zero") {
    in_virtual([] {
      wait_group group;
      group.add();
      auto f = spawn([&] { group.wait(); });
      settle();
      group.done();
      group.add();
      f.join();
      CHECK(group.count() == 1);
      group.done();
    });
  }

  TEST_CASE("below zero and beyond the range it throws and nothing changes") {
    wait_group group;
    CHECK(holds(text_of<std::logic_error>([&] { group.done(); }), "below zero"));
    CHECK_THROWS_AS(group.add(-1), std::logic_error);
    group.add(2);
    CHECK_THROWS_AS(group.add(-3), std::logic_error);
    CHECK(group.count() == 2);
    CHECK_THROWS_AS(group.add(std::numeric_limits<std::int64_t>::max()), std::logic_error);
    CHECK(group.count() == 2);
    group.add(-2);
    CHECK_THROWS_AS(group.add(std::numeric_limits<std::int64_t>::min()), std::logic_error);
    group.wait();
  }

  TEST_CASE("what was written before done is seen after wait, by fibers and threads") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      for (int i = 0; i < rounds(500); ++i) {
        wait_group group;
        int a = 0;
        int b = 0;
        group.add(2);
        vigil::go([&] {
          a = 1;
          group.done();
        });
        std::thread other([&] {
          b = 2;
          group.done();
        });
        group.wait();
        CHECK(a + b == 3);
        other.join();
      }
    });
  }

  TEST_CASE("may be destroyed as soon as wait has returned") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      for (int i = 0; i < rounds(5'000); ++i) {
        auto group = std::make_unique<wait_group>();
        group->add();
        vigil::go([g = group.get()] { g->done(); });
        group->wait();
        group.reset();
      }
    });
  }

  TEST_CASE("a timed wait is false at exactly its deadline, and true if it is zero by then") {
    in_virtual([] {
      wait_group group;
      CHECK(group.wait_for(-1ms));
      group.add();
      const auto start = clock::now();
      CHECK_FALSE(group.wait_for(10ms));
      CHECK_FALSE(group.wait_until(start + 20ms));
      CHECK_FALSE(group.wait_for(0ms));
      CHECK(since(start) == 20ms);
      auto f = spawn([&] {
        sleep_for(5ms);
        group.done();
      });
      CHECK(group.wait_for(1h));
      CHECK(since(start) == 25ms);
      f.join();
    });
  }

  TEST_CASE("go counts until the function has ended, however it does, and its captures are gone") {
    in_virtual([] {
      wait_group group;
      std::atomic<int> done{0};
      auto captured = std::make_shared<int>(1);
      const std::weak_ptr<int> left = captured;
      for (int i = 0; i < 3; ++i) {
        group.go([&done, i, captured] {
          sleep_for(std::chrono::milliseconds(*captured + i));
          ++done;
        });
      }
      captured.reset();
      CHECK(group.count() == 3);
      group.wait();
      CHECK(done == 3);
      CHECK(left.expired());
    });
    static std::atomic<int> unhandled{0};
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr) { ++unhandled; };
    in_virtual({.seed = 1, .runtime = o}, [] {
      wait_group group;
      group.go([] { throw std::runtime_error("on purpose"); });
      group.wait();
    });
    CHECK(unhandled == 1);
  }

  TEST_CASE("go counts until captures are gone that can only be copied, also slow ones") {
    struct slow {
      std::atomic<int>& gone;

      ~slow() {
        const vigil::this_fiber::shield s;
        sleep_for(1s);
        ++gone;
      }
    };

    static std::atomic<int> unhandled{0};
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr) { ++unhandled; };
    in_virtual({.seed = 1, .runtime = o}, [] {
      std::atomic<int> gone{0};
      wait_group group;
      for (const bool throws : {false, true}) {
        const std::shared_ptr<slow> held(new slow{gone});
        group.go([held, throws] {
          sleep_for(1ms);
          if (throws) throw std::runtime_error("on purpose");
        });
      }
      group.wait();
      CHECK(gone == 2);
    });
    CHECK(unhandled == 1);
  }

  TEST_CASE("go refuses an empty function, and counts nothing where no fiber can be started") {
    wait_group group;
    CHECK_THROWS_AS(group.go(std::function<void()>()), std::invalid_argument);
    CHECK_THROWS_AS(group.go([] {}), vigil::wrong_place);
    CHECK(group.count() == 0);
  }

  TEST_CASE("a stop ends the wait") {
    in_virtual([] {
      wait_group group;
      group.add();
      auto f = spawn([&] { group.wait(); });
      settle();
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      group.done();
      group.wait();
    });
  }
}

TEST_SUITE("latch") {
  TEST_CASE("lets all go on when it has come to zero, and stays open") {
    in_virtual([] {
      latch l(3);
      crowd all;
      for (int i = 0; i < 3; ++i)
        all.add([&] { l.arrive_and_wait(); });
      l.wait();
      all.join();
      CHECK(l.try_wait());
      l.wait();
      CHECK(l.wait_for(-1ms));
    });
  }

  TEST_CASE("who arrives and waits under a context has arrived, however the wait ends") {
    in_virtual([] {
      latch l(3);
      const auto start = clock::now();
      const auto it = vigil::with_timeout(vigil::background(), 1s);
      CHECK_THROWS_AS(l.arrive_and_wait(it.ctx), vigil::cancelled);
      CHECK(since(start) == 1s);
      CHECK(l.count() == 2);
      CHECK_THROWS_AS(l.arrive_and_wait(vigil::context()), std::invalid_argument);
      CHECK_THROWS_AS(l.arrive_and_wait(it.ctx, 3), std::logic_error);
      CHECK(l.count() == 2);
      l.arrive_and_wait(it.ctx, 2);  // open: goes on
    });
  }

  TEST_CASE("a timed wait is false at exactly its deadline") {
    in_virtual([] {
      latch l(1);
      const auto start = clock::now();
      CHECK_FALSE(l.try_wait());
      CHECK_FALSE(l.wait_for(10ms));
      CHECK_FALSE(l.wait_until(start + 20ms));
      CHECK(since(start) == 20ms);
      l.count_down();
      CHECK(l.wait_until(start));
    });
  }

  TEST_CASE("never rises and never goes below zero") {
    latch l(2);
    CHECK_THROWS_AS(l.count_down(-1), std::logic_error);
    CHECK_THROWS_AS(l.count_down(std::numeric_limits<std::int64_t>::min()), std::logic_error);
    CHECK(holds(text_of<std::logic_error>([&] { l.count_down(3); }), "more than is left"));
    CHECK(l.count() == 2);
    l.count_down(0);
    l.count_down(2);
    CHECK_THROWS_AS(l.count_down(), std::logic_error);
    CHECK_THROWS_AS(latch(-1), std::invalid_argument);
    latch(0).wait();
  }

  TEST_CASE("threads and fibers meet at one") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      latch l(4);
      std::thread a([&] { l.arrive_and_wait(); });
      std::thread b([&] { l.arrive_and_wait(); });
      auto f = spawn([&] { l.arrive_and_wait(); });
      l.arrive_and_wait();
      f.join();
      a.join();
      b.join();
    });
  }
}

TEST_SUITE("semaphore") {
  TEST_CASE("no more are inside than there are permits") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      semaphore s(3);
      std::atomic<int> inside{0};
      std::atomic<int> most{0};
      const auto work = [&](std::uint64_t seed) {
        seeded dice(seed);
        for (int i = 0; i < rounds(1'000); ++i) {
          const int n = 1 + static_cast<int>(dice.below(3));
          if (dice.below(2) == 0) {
            s.acquire(n);
          } else if (!s.acquire_for(std::chrono::microseconds(dice.below(50)), n)) {
            continue;
          }
          const int now = inside.fetch_add(n) + n;
          CHECK(now <= 3);
          if (now > most) most = now;
          if (vigil::this_fiber::id() != 0) vigil::this_fiber::yield();
          inside.fetch_sub(n);
          s.release(n);
        }
      };
      crowd all;
      for (std::uint64_t i = 0; i < 6; ++i)
        all.add([&, i] { work(i + 1); });
      std::thread outside([&] { work(50); });
      all.join();
      outside.join();
      CHECK(s.available() == 3);
    });
  }

  TEST_CASE("first come, first served: many permits are not starved by requests for few") {
    for_each_seed(10, [] {
      semaphore s(2);
      s.acquire(2);
      std::vector<int> order;
      crowd all;
      const auto ask = [&](std::int64_t n) {
        all.add([&, n] {
          s.acquire(n);
          order.push_back(static_cast<int>(n));
          s.release(n);
        });
        settle();
      };
      ask(2);
      ask(1);
      ask(1);
      s.release(1);
      settle();
      CHECK(order.empty());  // one is free, but the first wants two
      CHECK_FALSE(s.try_acquire());
      CHECK_FALSE(s.acquire_for(1ms));
      s.release(1);
      all.join();
      CHECK(order == std::vector{2, 1, 1});
      CHECK(s.available() == 2);
    });
  }

  TEST_CASE("one who gives up or is stopped lets those behind go on, and takes nothing") {
    in_virtual([] {
      semaphore s(1);
      const auto start = clock::now();
      auto large = spawn([&] { CHECK_FALSE(s.acquire_for(10ms, 5)); });
      settle();
      auto small = spawn([&] {
        s.acquire();
        CHECK(since(start) == 10ms);
        s.release();
      });
      small.join();
      large.join();
      auto never = spawn([&] { s.acquire(5); });
      settle();
      auto behind = spawn([&] { s.acquire(); });
      settle();
      never.request_stop();
      behind.join();
      CHECK_THROWS_AS(never.join(), vigil::cancelled);
      CHECK(s.available() == 0);
    });
  }

  TEST_CASE("zero permits are had at once, negative numbers and too many are refused") {
    semaphore s(0);
    s.acquire(0);
    CHECK(s.try_acquire(0));
    CHECK_FALSE(s.try_acquire());
    CHECK_FALSE(s.acquire_for(0ms));
    CHECK_THROWS_AS(s.acquire(-1), std::invalid_argument);
    CHECK_THROWS_AS(s.try_acquire(-1), std::invalid_argument);
    CHECK(holds(text_of<std::invalid_argument>([&] { s.release(-1); }), "negative"));
    CHECK_THROWS_AS(semaphore(-1), std::invalid_argument);
    s.release(std::numeric_limits<std::int64_t>::max());
    CHECK_THROWS_AS(s.release(), std::overflow_error);
    CHECK(s.available() == std::numeric_limits<std::int64_t>::max());
    CHECK(s.acquire_until(clock::now(), std::numeric_limits<std::int64_t>::max()));
  }

  TEST_CASE("a timed request is false at exactly its deadline") {
    in_virtual([] {
      semaphore s(0);
      const auto start = clock::now();
      CHECK_FALSE(s.acquire_for(10ms));
      CHECK_FALSE(s.acquire_until(start + 20ms));
      CHECK(since(start) == 20ms);
      vigil::after_func(5ms, [&] { s.release(); });
      CHECK(s.acquire_for(1h));
      CHECK(since(start) == 25ms);
    });
  }
}

namespace {

void fails_in_a_second() {
  sleep_for(1s);
  throw std::runtime_error("on purpose");
}

}  // namespace

TEST_SUITE("once") {
  TEST_CASE("of many that come at once one runs the function, the others wait for its end") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      for (int i = 0; i < rounds(200); ++i) {
        once o;
        int runs = 0;
        crowd all;
        const auto come = [&] {
          o.call([&] {
            ++runs;
            if (vigil::this_fiber::id() != 0) vigil::this_fiber::yield();
          });
          CHECK(runs == 1);
          CHECK(o.is_done());
        };
        for (int f = 0; f < 4; ++f)
          all.add(come);
        std::thread a(come);
        all.join();
        a.join();
        o.call([] { CHECK(false); });
      }
    });
  }

  TEST_CASE("passes its arguments on and drops the result") {
    once o;
    int sum = 0;
    o.call(
        [&](int a, std::unique_ptr<int> b) {
          sum = a + *b;
          return 1;
        },
        3,
        std::make_unique<int>(4));
    CHECK(sum == 7);
  }

  TEST_CASE("a context bounds the wait for another's run, not the run") {
    in_virtual([] {
      const auto start = clock::now();
      once o;
      auto it = vigil::with_timeout(vigil::background(), 1s);
      auto runner = spawn([&] {
        o.call(
            it.ctx, [](auto d) { sleep_for(d); }, 2s);
      });
      settle();
      CHECK_THROWS_AS(o.call(it.ctx, [] {}), vigil::cancelled);
      CHECK(since(start) == 1s);
      CHECK_FALSE(o.is_done());
      o.call(vigil::background(), [] {});
      CHECK(since(start) == 2s);
      runner.join();
      o.call(it.ctx, [] { FAIL("run twice"); });
      CHECK_THROWS_AS(o.call(vigil::context(), [] {}), std::invalid_argument);
    });
  }

  TEST_CASE("who waits for one run after another keeps the context that it began with") {
    in_virtual([] {
      const auto start = clock::now();
      once o;
      auto ctx = vigil::with_timeout(vigil::background(), 3s).ctx;
      auto runs_twice = spawn([&] {
        CHECK_THROWS_AS(o.call(fails_in_a_second), std::runtime_error);
        o.call([] { sleep_for(1h); });
      });
      settle();
      auto waits = spawn([&] { o.call(ctx, [] { FAIL("run by who waits"); }); });
      settle();
      ctx = vigil::context();
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      CHECK(since(start) == 3s);
      runs_twice.join();
    });
  }

  TEST_CASE("lets go of a context without its lock: what dies with it may call it") {
    static once o;

    struct calls {
      explicit calls(bool& told) noexcept : died(&told) {}

      calls(calls&& other) noexcept : died(std::exchange(other.died, nullptr)) {}

      ~calls() {
        if (died == nullptr) return;
        o.call([] { FAIL("run twice"); });
        *died = true;
      }

      bool* died;
    };

    static const vigil::context_key<calls> key;
    bool died = false;
    in_virtual([&] {
      auto ctx = vigil::with_cancel(vigil::with_value(vigil::background(), key, calls(died))).ctx;
      crowd all;
      all.add([&] {
        CHECK_THROWS_AS(o.call(fails_in_a_second), std::runtime_error);
        o.call([] { sleep_for(1s); });
      });
      settle();
      all.add([&] { o.call(ctx, [] { FAIL("run by who waits"); }); });
      settle();
      ctx = vigil::context();
      all.join();
    });
    CHECK(died);
  }

  TEST_CASE("an exception goes to who ran it, and the next one runs its own") {
    for_each_seed(10, [] {
      once o;
      int runs = 0;
      int failures = 0;
      crowd all;
      for (int i = 0; i < 4; ++i) {
        all.add([&] {
          try {
            o.call([&] {
              sleep_for(1ms);
              if (++runs < 3) throw std::runtime_error("on purpose");
            });
          } catch (const std::runtime_error&) {
            ++failures;
          }
        });
      }
      all.join();
      CHECK(runs == 3);
      CHECK(failures == 2);
      CHECK(o.is_done());
    });
  }

  TEST_CASE("one that calls itself is told so instead of waiting for ever") {
    in_virtual([] {
      once o;
      CHECK(holds(text_of<std::logic_error>([&] { o.call([&] { o.call([] {}); }); }), "again"));
      CHECK_FALSE(o.is_done());
      o.call([] {});
      CHECK(o.is_done());
    });
    once outside;
    CHECK_THROWS_AS(outside.call([&] { outside.call([] {}); }), std::logic_error);
  }

  TEST_CASE("a stop ends the wait for the other, and the function of who is stopped is undone") {
    in_virtual([] {
      once o;
      auto runner = spawn([&] { o.call([] { sleep_for(1h); }); });
      settle();
      auto waiting = spawn([&] { o.call([] { CHECK(false); }); });
      settle();
      waiting.request_stop();
      CHECK_THROWS_AS(waiting.join(), vigil::cancelled);
      runner.request_stop();
      CHECK_THROWS_AS(runner.join(), vigil::cancelled);
      CHECK_FALSE(o.is_done());
      bool ran = false;
      o.call([&] { ran = true; });
      CHECK(ran);
    });
  }
}
