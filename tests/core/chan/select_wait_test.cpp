// select: waits that end by a timeout, a timer, a stop or the shutdown.
#include "core/chan/chan_test.hpp"

#include <optional>

using namespace vigil::testing_support;
using vigil::on_deadline;

TEST_SUITE("select") {
  TEST_CASE("a timeout ends it exactly then, and every queue forgets it") {
    in_virtual([] {
      const auto a = make_channel<int>();
      const auto b = with_value(1);
      const auto start = vigil::clock::now();
      CHECK(select(on_recv(a), on_send(a, 1), on_send(b, 2), on_timeout(3s)) == 3);
      CHECK(since(start) == 3s);
      CHECK(b.recv() == 1);
      check_nobody_waits(a);
      check_nobody_waits(b);
      CHECK(select(on_timeout(2s)) == 0);
      CHECK(since(start) == 5s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  // Go: chan/select3.go: default; ready wins over default.
  TEST_CASE("a timeout of zero or less is taken only when nothing is ready") {
    in_virtual([] {
      const auto closed = closed_channel();
      const auto never = make_channel<int>();
      const auto start = vigil::clock::now();
      for (const auto d : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
        for (int i = 0; i < 20; ++i) {
          CHECK(select(on_timeout(d), on_recv(closed)) == 1);
          CHECK(select(on_timeout(d), on_recv(never)) == 0);
          CHECK(select(on_deadline(start + d), on_recv(closed)) == 1);
        }
        CHECK(select(on_recv(never), on_deadline(start + d)) == 1);
        CHECK(select(on_timeout(d)) == 0);
      }
      CHECK(since(start) == 0s);
      check_nobody_waits(never);
    });
  }

  TEST_CASE("of two timeouts the earlier wins, wherever it stands and however it is said") {
    in_virtual([] {
      const auto never = make_channel<int>();
      const auto now = [] { return vigil::clock::now(); };
      auto start = now();
      CHECK(select(on_timeout(2s), on_recv(never), on_timeout(1s)) == 2);
      CHECK(since(start) == 1s);
      start = now();
      CHECK(select(on_timeout(1s), on_recv(never), on_timeout(2s)) == 0);
      CHECK(since(start) == 1s);
      start = now();
      CHECK(select(on_deadline(start + 3s), on_timeout(1s)) == 1);
      CHECK(since(start) == 1s);
      start = now();
      CHECK(select(on_timeout(3s), on_deadline(start + 1s), on_timeout(2s)) == 1);
      CHECK(since(start) == 1s);
      CHECK(select(on_timeout(std::chrono::hours::max()), on_timeout(1s)) == 1);
      CHECK(select(on_timeout(1s), on_deadline(vigil::clock::time_point::max())) == 0);
      start = now();
      CHECK(select(on_timeout(1s), on_deadline(start - 1s), on_timeout(0s)) == 1);
      CHECK(since(start) == 0s);
      CHECK(select(on_timeout(1s), otherwise(), on_timeout(0s)) == 1);
      // The first of equal ones.
      CHECK(select(on_timeout(1s), on_timeout(1s)) == 0);
      start = now();
      CHECK(select(on_deadline(start + 1s), on_timeout(1s)) == 0);
    });
  }

  TEST_CASE("a timeout beyond the range of the clock never comes") {
    in_virtual([] {
      const auto c = make_channel<int>();
      auto f =
          spawn([&] { return select(on_timeout(std::chrono::nanoseconds::max()), on_recv(c)); });
      auto g = spawn([&] { return select(on_deadline(vigil::clock::time_point::max())); });
      sleep_for(24h * 365 * 100);
      CHECK_FALSE(f.join_for(0s));
      CHECK_FALSE(g.join_for(0s));
      c.send(1);
      CHECK(f.join() == 1);
      g.request_stop();
      CHECK_THROWS_AS(g.join(), vigil::cancelled);
    });
  }

  TEST_CASE("one deadline serves a whole loop of selects") {
    in_virtual([] {
      const auto c = make_channel<int>();
      go([c] {
        for (int i = 0;; ++i) {
          sleep_for(300ms);
          c.send(i);
        }
      });
      const auto start = vigil::clock::now();
      int got = 0;
      for (bool done = false; !done;)
        select(on_recv(c, [&] { ++got; }), on_deadline(start + 1s, [&] { done = true; }));
      CHECK(got == 3);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("a point of another clock serves as a deadline") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(select(on_deadline(std::chrono::steady_clock::now() + 1h)) == 0);
      CHECK(since(start) > 59min);
      CHECK(since(start) <= 1h);
    });
  }

  TEST_CASE("a real timeout is never early, on a fiber or a thread") {
    const auto tries = [] {
      const auto c = make_channel<int>();
      seeded dice(9);
      for (int i = 0; i < rounds(200); ++i) {
        const std::chrono::nanoseconds d(1 + dice.below(100'000));
        const auto start = vigil::clock::now();
        REQUIRE(select(on_recv(c), on_timeout(d), on_send(c, 1)) == 1);
        REQUIRE(since(start) >= d);
        const auto deadline = vigil::clock::now() + d;
        REQUIRE(select(on_timeout(1h), on_deadline(deadline)) == 1);
        REQUIRE(vigil::clock::now() >= deadline);
      }
      check_nobody_waits(c);
    };
    tries();
    in_runtime({.workers = {1, 2}}, tries);
  }

  TEST_CASE("the channel of a timer goes by the clock, even where there is no wait") {
    in_virtual([] {
      const auto t = vigil::after(1s);
      CHECK(select(on_recv(t), otherwise()) == 1);
      CHECK(select(on_recv(t), on_timeout(999'999'999ns)) == 1);
      CHECK(select(on_recv(t), otherwise()) == 1);
      sleep_for(1ns);
      CHECK(select(on_recv(t), otherwise()) == 0);
      CHECK(select(on_recv(t), otherwise()) == 1);
    });
    in_runtime({.workers = {1, 2}}, [] {
      for (int i = 0; i < rounds(500); ++i) {
        const auto before = vigil::clock::now();
        const auto t = vigil::after(std::chrono::microseconds(i % 20));
        const auto due = vigil::clock::now() + std::chrono::microseconds(i % 20);
        while (vigil::clock::now() < due) {
        }
        REQUIRE(select(on_recv(t,
                               [&](std::optional<vigil::clock::time_point> at) {
                                 REQUIRE(at >= before + std::chrono::microseconds(i % 20));
                               }),
                       otherwise()) == 0);
      }
    });
  }

  TEST_CASE("a timer that is due has its share of the draws beside cases that are always ready") {
    const auto tries = [](int n, auto until) {
      const auto closed = closed_channel();
      int drawn = 0;
      for (int i = 0; i < n; ++i) {
        const auto t = vigil::after(10us);
        until(vigil::clock::now() + 10us);
        REQUIRE(select_ordered(on_recv(t), on_recv(closed)) == 0);
        const auto u = vigil::after(10us);
        until(vigil::clock::now() + 10us);
        drawn += select(on_recv(closed), on_recv(u)) == 1 ? 1 : 0;
      }
      check_share(drawn, n, 2);
    };
    in_virtual([&] { tries(rounds(2000), [](auto t) { vigil::sleep_until(t); }); });
    in_runtime({.workers = {1, 2}}, [&] {
      tries(rounds(2000), [](auto t) {
        while (vigil::clock::now() < t) {
        }
      });
    });
  }

  // --- stop

  // Go: TestShrinkStackDuringBlockedSend, TestNoShrinkStackWhileParking,
  // TestSelectStackAdjust.
  TEST_CASE("a stop ends it by stopped, and every queue forgets it") {
    for_each_seed(20, [] {
      const auto a = make_channel<int>();
      const auto b = make_channel<int>();
      bool called = false;
      auto f = spawn([&] {
        const auto call = [&] { called = true; };
        try {
          select(on_recv(a, call), on_send(b, 1, call), on_timeout(1h, call), on_recv(a, call));
        } catch (const vigil::stopped&) {
          wipe_stack_below();
          throw;
        }
      });
      settle();
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK_FALSE(called);
      check_nobody_waits(a);
      check_nobody_waits(b);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("while stopping a case that is ready is still taken, otherwise it throws") {
    in_virtual([] {
      const auto full = make_channel<int>(3);
      for (int i = 0; i < 3; ++i)
        full.send(i);
      const auto never = make_channel<int>();
      auto f = spawn([&] {
        try {
          sleep_for(1h);
        } catch (const vigil::stopped&) {
        }
        int sum = 0;
        while (select(on_recv(full, [&](std::optional<int> v) { sum += v.value(); }),
                      on_recv(never),
                      otherwise()) == 0) {
        }
        CHECK(sum == 3);
        CHECK(select(on_recv(never), on_timeout(0s)) == 1);
        CHECK(select(on_recv(closed_channel()), on_timeout(1h)) == 0);
        CHECK_THROWS_AS(select(on_recv(never), on_timeout(1s)), vigil::stopped);
        CHECK_THROWS_AS(select(on_recv(never)), vigil::stopped);
        CHECK_THROWS_AS(select(on_timeout(1s)), vigil::stopped);
        CHECK_THROWS_AS(select(), vigil::stopped);
        const vigil::this_fiber::shield shield;
        CHECK(select(on_recv(never), on_timeout(1ms)) == 1);
      });
      settle();
      f.request_stop();
      f.join();
      check_nobody_waits(never);
    });
  }

  TEST_CASE("fibers in the middle of any select are unwound by the shutdown") {
    for (const unsigned workers : {1u, 2u, 4u}) {
      const auto c = make_channel<std::unique_ptr<int>>();
      std::atomic<int> kept{0};
      in_runtime({.workers = {workers}}, [&] {
        for (int i = 0; i < 20; ++i) {
          go([&, i] {
            auto mine = std::make_unique<int>(i);
            try {
              i % 2 == 0 ? select(on_send(c, std::move(mine)), on_timeout(1h))
                         : select(on_recv(channel<int>()), on_send(c, std::move(mine)));
            } catch (const vigil::stopped&) {
              if (mine != nullptr) ++kept;
              throw;
            }
          });
        }
        for (int i = 0; i < 3; ++i)
          static_cast<void>(c.recv());
        // Half of them may not have reached their select yet; both kinds will.
      });
      CHECK(kept == 17);
      check_nobody_waits(c);
    }
  }
}
