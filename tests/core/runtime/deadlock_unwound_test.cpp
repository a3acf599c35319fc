// A fatal deadlock of locks: fibers that wait for locks are unwound like all others.
#include "core/runtime/runtime_test.hpp"

#include <vigil/group.hpp>
#include <vigil/single_flight.hpp>
#include <vigil/stop_token.hpp>
#include <vigil/sync.hpp>

#include <csignal>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <vector>

using namespace vigil::testing_support;

namespace {

// A shutdown that waits for its limit in real time would hang the test.
vigil::options fatal_with(std::size_t workers) {
  vigil::options o;
  o.deadlock = vigil::on_deadlock::fatal;
  o.workers = workers;
  o.stop_limit = 1h;
  return o;
}

void check_deadlock(const std::function<void()>& f) {
  for (const std::size_t workers : {1u, 2u, 4u})
    CHECK_THROWS_AS(vigil::run(fatal_with(workers), f), vigil::deadlock);
  vigil::testing::virtual_options how;
  how.runtime.stop_limit = 1h;
  CHECK_THROWS_AS(vigil::testing::run_virtual(how, f), vigil::deadlock);
}

// Two fibers, each of which holds one lock and waits for the other's.
struct ring {
  vigil::mutex a;
  vigil::mutex b;
  vigil::latch both_have_one{2};

  void left() { wait_in(a, b); }

  void right() { wait_in(b, a); }

 private:
  void wait_in(vigil::mutex& own, vigil::mutex& others) {
    const std::lock_guard first(own);
    both_have_one.count_down();
    both_have_one.wait();
    const std::lock_guard second(others);
  }
};

}  // namespace

TEST_SUITE("deadlock of locks") {
  TEST_CASE("a fiber that locks a mutex twice is unwound, and run throws deadlock") {
    check_deadlock([] {
      vigil::mutex m;
      const std::lock_guard first(m);
      const std::lock_guard second(m);
    });
    check_deadlock([] {
      vigil::mutex m;
      m.lock();
      CHECK_THROWS_AS(m.lock(), vigil::deadlock);
      CHECK_FALSE(m.try_lock());  // it was not taken
      m.unlock();
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("two fibers that wait for each other's mutex are unwound, however they were started") {
    check_deadlock([] {
      ring r;
      auto other = vigil::spawn([&] { r.left(); });
      r.right();
      other.join();
    });
    check_deadlock([] {
      const auto r = std::make_shared<ring>();
      vigil::go([r] { r->left(); });
      vigil::go([r] { r->right(); });
      vigil::wait_group never_done;
      never_done.add();
      never_done.wait();
    });
    check_deadlock([] {
      const auto r = std::make_shared<ring>();
      vigil::after_func(1ms, [r] { r->left(); });
      vigil::after_func(1ms, [r] { r->right(); });
      vigil::make_channel<int>().recv();
    });
    check_deadlock([] {
      ring r;
      vigil::group g;
      g.go([&] { r.left(); });
      g.go([&] { r.right(); });
      g.wait();
    });
  }

  TEST_CASE("on_unhandled does not hear of a fiber that a deadlock has unwound") {
    static std::atomic<int> heard{0};
    vigil::options o = fatal_with(2);
    o.on_unhandled = [](std::exception_ptr) { heard.fetch_add(1); };
    CHECK_THROWS_AS(vigil::run(o,
                               [] {
                                 const auto r = std::make_shared<ring>();
                                 vigil::go([r] { r->left(); });
                                 vigil::after_func(0ms, [r] { r->right(); });
                                 vigil::make_channel<int>().recv();
                               }),
                    vigil::deadlock);
    CHECK(heard.load() == 0);
  }

  TEST_CASE("writers and readers of a shared_mutex are unwound") {
    check_deadlock([] {
      vigil::shared_mutex m;
      const std::shared_lock first(m);
      const std::unique_lock second(m);
    });
    check_deadlock([] {
      vigil::shared_mutex m;
      const std::unique_lock first(m);
      const std::shared_lock second(m);
    });
  }

  TEST_CASE("a wait for a lock that the unwinding of its holder releases ends as well") {
    std::atomic<int> ended{0};
    check_deadlock([&] {
      vigil::mutex m;
      auto holder = vigil::spawn([&] {
        const std::lock_guard held(m);
        vigil::make_channel<int>().recv();
      });
      sleep_for(1ms);
      try {
        m.lock();
        m.unlock();
      } catch (const vigil::deadlock&) {
        ended.fetch_add(1);
      }
      holder.join();
    });
    CHECK(ended.load() == 4);
  }

  TEST_CASE("a lock that is waited for as the run unwinds is handed over") {
    std::atomic<int> got{0};
    check_deadlock([&] {
      vigil::mutex held;
      vigil::latch cleans_up{1};
      auto holder = vigil::spawn([&] {
        const std::lock_guard lock(held);
        const vigil::this_fiber::shield shield;
        cleans_up.wait();
        sleep_for(1ms);  // virtual or real: the other one waits meanwhile
      });
      auto late = vigil::spawn([&] {
        try {
          vigil::make_channel<int>().recv();
        } catch (const vigil::stopped&) {
        }
        cleans_up.count_down();
        held.lock();  // throws nothing
        got.fetch_add(1);
        held.unlock();
      });
      late.join();
    });
    CHECK(got.load() == 4);
  }

  TEST_CASE("two fibers that clean up meet at the lock of a single_flight, and end") {
    std::atomic<int> ended{0};
    check_deadlock([&] {
      vigil::single_flight<int, int> flights;
      std::vector<vigil::fiber<void>> all;
      for (int i = 0; i < 8; ++i) {
        all.push_back(vigil::spawn([&, i] {
          const int n = flights.call(i, [i] {
            try {
              vigil::make_channel<int>().recv();
            } catch (const vigil::stopped&) {
            }
            return i;
          });
          ended.fetch_add(n == i ? 1 : 0);
        }));
      }
      vigil::make_channel<int>().recv();
    });
    CHECK(ended.load() == 4 * 8);
  }

  TEST_CASE("a condition_variable's wait gets its lock back before it is unwound") {
    std::atomic<int> had{0};
    check_deadlock([&] {
      vigil::mutex m;
      vigil::mutex other;
      vigil::condition_variable changed;
      vigil::latch has_it{1};
      auto waits = vigil::spawn([&] {
        std::unique_lock lock(m);
        has_it.count_down();
        try {
          changed.wait(lock);
        } catch (const vigil::stopped&) {
          had.fetch_add(lock.owns_lock() ? 1 : 0);
          throw;
        }
      });
      has_it.wait();
      const std::lock_guard first(m);  // the relocking waits for it
      const std::lock_guard second(other);
      const std::lock_guard third(other);
    });
    CHECK(had.load() == 4);
  }

  TEST_CASE("a destructor that locks while its fiber unwinds waits until others have unwound") {
    std::atomic<int> locked{0};
    check_deadlock([&] {
      ring r;
      vigil::mutex twice;

      struct locks_at_end {
        vigil::mutex* m;
        std::atomic<int>* n;

        ~locks_at_end() {
          const std::lock_guard lock(*m);
          n->fetch_add(1);
        }
      };

      auto other = vigil::spawn([&] {
        const std::lock_guard first(r.a);
        sleep_for(1ms);
        const std::lock_guard second(twice);
      });
      const locks_at_end guard{&r.a, &locked};
      const std::lock_guard first(twice);
      sleep_for(2ms);
      const std::lock_guard second(twice);
    });
    CHECK(locked.load() == 4);
  }

  TEST_CASE("a stop_callback of the root context that locks waits until others have unwound") {
    struct part {
      vigil::mutex m;
      std::unique_ptr<std::stop_callback<std::function<void()>>> locks;
    };

    std::atomic<int> locked{0};
    std::vector<std::unique_ptr<part>> parts;  // they outlive the runs
    check_deadlock([&] {
      part& p = *parts.emplace_back(std::make_unique<part>());
      p.locks = std::make_unique<std::stop_callback<std::function<void()>>>(
          vigil::stop_token_of(vigil::background()), [&p, &locked] {
            const std::lock_guard lock(p.m);
            locked.fetch_add(1);
          });
      const std::lock_guard held(p.m);
      vigil::mutex twice;
      const std::lock_guard first(twice);
      const std::lock_guard second(twice);
    });
    CHECK(locked.load() == 4);
  }

  TEST_CASE("child: a deadlock under a shield" * doctest::skip()) {
    vigil::testing::run_virtual({.seed = 4711}, [] {
      vigil::this_fiber::set_name("the stuck one");
      vigil::mutex m;
      const vigil::this_fiber::shield shield;
      m.lock();
      m.lock();
    });
  }

  TEST_CASE("one that cannot be unwound ends the program after the stop limit, and is named") {
    const child_result r = run_child("child: a deadlock under a shield");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("vigil: deadlock"));
    CHECK(r.says("options::stop_limit"));
    CHECK(r.says("(the stuck one), parked, waits for: mutex"));
    CHECK(r.says("VIGIL_SEED=4711"));
  }

  TEST_CASE("child: catches a deadlock for ever" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      vigil::this_fiber::set_name("the \x1b[31m one");
      vigil::mutex m;
      m.lock();
      for (;;) {
        try {
          m.lock();
        } catch (const std::exception&) {
        }
      }
    });
  }

  TEST_CASE("a fiber that catches it and locks again is named after the stop limit") {
    const child_result r = run_child("child: catches a deadlock for ever");
    CHECK_FALSE(r.succeeded());
    CHECK(r.says("options::stop_limit"));
    CHECK(r.says("(the \\x1b[31m one), parked, waits for: mutex"));
  }
}
