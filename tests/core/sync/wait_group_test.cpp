// wait_group: a count that fibers and threads wait for, again and again.
#include "core/sync/sync_test.hpp"

#include <functional>
#include <limits>
#include <memory>

using namespace vigil::testing_support;
using vigil::wait_group;

TEST_SUITE("wait_group") {
  // Go: WaitGroup: reuse after Wait.
  TEST_CASE("readies all waiters when the last is done, and can be used again") {
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
          CHECK_FALSE(group.try_wait());
          group.done();
        }
        all.join();
        CHECK(through == 4);
        CHECK(group.try_wait());
        group.wait();  // returns at once
      }
    });
  }

  // Go: WaitGroup: reuse after Wait.
  TEST_CASE("a waiter goes on although more is added as soon as it was zero") {
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

  // Go: WaitGroup: misuse (negative) panics.
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

  // Go: WaitGroup: writes before Done visible after Wait.
  TEST_CASE("a write before done is seen after wait, by fibers and threads") {
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

  // Go: WaitGroup.Go.
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

  TEST_CASE("go counts until captures are gone that can only be copied, even slow ones") {
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

  TEST_CASE("the errors of go name it") {
    wait_group group;
    try {
      group.go([] {});
      FAIL("started");
    } catch (const vigil::wrong_place& e) {
      CHECK(std::string(e.what()).rfind("vigil::wait_group::go: this thread has no runtime", 0) ==
            0);
    }
    try {
      group.go(std::function<void()>());
      FAIL("started");
    } catch (const std::invalid_argument& e) {
      CHECK(std::string(e.what()).rfind("vigil::wait_group::go: the function is empty", 0) == 0);
    }
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
