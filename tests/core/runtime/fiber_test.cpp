// spawn, join, detach, request_stop.
#include "core/runtime/runtime_test.hpp"

using namespace vigil::testing_support;
using vigil::go;

TEST_SUITE("spawn and join") {
  TEST_CASE("join waits for the end and returns the result") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto f = spawn([] {
        sleep_for(1s);
        return std::string("result");
      });
      CHECK(f.joinable());
      CHECK(f.join() == "result");
      CHECK(since(start) == 1s);
      CHECK_FALSE(f.joinable());
    });
  }

  TEST_CASE("results may be move-only, large, or the arguments themselves") {
    in_virtual([] {
      CHECK(*spawn([] { return std::make_unique<int>(5); }).join() == 5);
      CHECK(spawn([](std::string s) { return s; }, std::string(1000, 'x')).join().size() == 1000);
      struct big {
        std::array<int, 1000> values;
      };
      CHECK(spawn([] { return big{{1, 2, 3}}; }).join().values[2] == 3);
      CHECK(*spawn([](std::unique_ptr<int> p, int) { return p; }, std::make_unique<int>(7), 0)
                 .join() == 7);
    });
  }

  TEST_CASE("the function and its captures are destroyed when it returns, before the join") {
    in_virtual([] {
      auto shared = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = shared;
      auto f = spawn([p = std::move(shared)] { return 3; });
      CHECK_FALSE(watch.expired());
      vigil::testing::settle();
      CHECK(watch.expired());
      CHECK(f.join() == 3);
    });
  }

  TEST_CASE("join throws the fiber's exception") {
    in_virtual([] {
      auto f = spawn([]() -> int { throw std::runtime_error("planted"); });
      CHECK_THROWS_WITH_AS(static_cast<void>(f.join()), "planted", std::runtime_error);
      CHECK_FALSE(f.joinable());
      auto v = spawn([] { throw 42; });
      CHECK_THROWS_AS(v.join(), int);
    });
  }

  TEST_CASE("an empty handle, a second join and a self-join are refused") {
    in_virtual([] {
      vigil::fiber<> none;
      CHECK_FALSE(none.joinable());
      CHECK(none.id() == 0);
      none.request_stop();
      CHECK_THROWS_AS(none.join(), vigil::wrong_place);
      CHECK_THROWS_AS(none.detach(), vigil::wrong_place);
      auto f = spawn([] {});
      f.join();
      CHECK_THROWS_AS(f.join(), vigil::wrong_place);
      vigil::fiber<> own;
      bool refused = false;
      own = spawn([&] {
        try {
          own.join();
        } catch (const vigil::wrong_place&) {
          refused = true;
        }
      });
      vigil::testing::settle();
      CHECK(refused);
      own.join();
    });
  }

  TEST_CASE("a second join of one handle is refused while the first waits") {
    in_virtual([] {
      auto f = spawn([] {
        sleep_for(1s);
        return 7;
      });
      auto first = spawn([&] { return f.join(); });
      vigil::testing::settle();
      CHECK_THROWS_AS(f.join(), vigil::wrong_place);
      CHECK_THROWS_AS(static_cast<void>(f.join_for(1h)), vigil::wrong_place);
      CHECK(first.join() == 7);
      CHECK_THROWS_AS(f.join(), vigil::wrong_place);
    });
  }

  TEST_CASE(
      "a second join is refused even when the fiber has ended and the first has not gone on") {
    for_each_seed(20, [] {
      auto f = spawn([] {
        sleep_for(1s);
        return 7;
      });
      const auto join = [&]() -> int {
        try {
          return f.join();
        } catch (const vigil::wrong_place&) {
          return 0;
        }
      };
      auto first = spawn(join);
      vigil::testing::settle();
      auto second = spawn([&] {
        sleep_for(1s);
        return join();
      });
      CHECK(first.join() == 7);
      CHECK(second.join() == 0);
    });
  }

  TEST_CASE("a join may follow one that ended without the fiber") {
    in_virtual([] {
      auto f = spawn([] {
        sleep_for(1s);
        return 7;
      });
      CHECK_FALSE(f.join_for(1ms));
      auto stopped = spawn([&] { return f.join(); });
      vigil::testing::settle();
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      CHECK(f.join_for(2s));
      CHECK(f.join() == 7);
    });
  }

  TEST_CASE("child: a handle dies while it is joined" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      auto f = std::make_unique<vigil::fiber<>>(spawn({.name = "shared"}, [] { sleep_for(1s); }));
      auto first = spawn([&] { f->join(); });
      vigil::testing::settle();
      f.reset();
    });
  }

  TEST_CASE("a handle that dies while it is joined ends the program by name") {
    const child_result r = run_child("child: a handle dies while it is joined");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK_MESSAGE(r.says("(shared)"), r.output);
    CHECK_MESSAGE(r.says("joins"), r.output);
  }

  TEST_CASE("join_for is true once the fiber has ended and keeps the handle otherwise") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto f = spawn([] {
        sleep_for(10s);
        return 5;
      });
      CHECK_FALSE(f.join_for(0s));
      CHECK_FALSE(f.join_for(-1h));
      CHECK(since(start) == 0s);
      CHECK_FALSE(f.join_for(3s));
      CHECK(since(start) == 3s);
      CHECK(f.join_for(std::chrono::hours::max()));
      CHECK(since(start) == 10s);
      CHECK(f.join_for(0s));
      CHECK(f.join() == 5);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("join_until is true by its deadline, of whichever clock, and keeps the handle") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto f = spawn([] {
        sleep_for(10s);
        return 5;
      });
      CHECK_FALSE(f.join_until(start));
      CHECK_FALSE(f.join_until(vigil::clock::time_point::min()));
      CHECK_FALSE(f.join_until(std::chrono::system_clock::time_point{}));
      CHECK(since(start) == 0s);
      CHECK_FALSE(f.join_until(start + 3s));
      CHECK(since(start) == 3s);
      // A point of another clock, which virtual time does not move: converted by its
      // distance from now.
      CHECK_FALSE(f.join_until(std::chrono::steady_clock::now() + 1h - 1h));
      CHECK(f.join_until(std::chrono::steady_clock::now() + 1h));
      CHECK(since(start) == 10s);
      CHECK(f.join_until(vigil::clock::time_point::max()));
      CHECK(f.join_until(start));
      CHECK(f.join() == 5);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a join_until that never ends by itself ends when the fiber does") {
    in_virtual([] {
      auto f = spawn([] { sleep_for(24h); });
      CHECK(f.join_until(std::chrono::system_clock::time_point::max()));
      f.join();
      vigil::fiber<> empty;
      CHECK_THROWS_AS(static_cast<void>(empty.join_until(vigil::clock::now())), vigil::wrong_place);
    });
  }

  TEST_CASE("a plain thread may join, even with a timeout") {
    in_runtime({.workers = {1, 2}}, [] {
      auto f = spawn([] {
        sleep_for(5ms);
        return 9;
      });
      std::atomic<bool> done{false};
      std::thread joiner([&] {
        while (!f.join_for(100us)) {
        }
        CHECK(f.join() == 9);
        done.store(true);
      });
      while (!done.load())
        sleep_for(1ms);
      joiner.join();
    });
  }

  TEST_CASE("plain threads that join race the end of the fiber and lose nothing") {
    in_runtime({.workers = {2}}, [] {
      for (int round = 0; round < rounds(500); ++round) {
        auto f = spawn([round] { return round; });
        std::atomic<bool> done{false};
        std::thread joiner([&] {
          CHECK(f.join() == round);
          done.store(true);
        });
        while (!done.load())
          vigil::this_fiber::yield();
        joiner.join();
      }
    });
  }

  TEST_CASE("a handle may outlive its runtime and still hold the result") {
    vigil::fiber<int> f;
    vigil::fiber<int> threw;
    vigil::fiber<int> stopped;
    vigil::run([&] {
      f = spawn([] { return 3; });
      threw = spawn([]() -> int { throw std::runtime_error("planted"); });
      stopped = spawn([] {
        sleep_for(1h);
        return 1;
      });
      sleep_for(5ms);
    });
    f.request_stop();
    CHECK(f.join_for(0s));
    CHECK(f.join() == 3);
    CHECK_THROWS_AS(static_cast<void>(threw.join()), std::runtime_error);
    CHECK_THROWS_AS(static_cast<void>(stopped.join()), vigil::cancelled);
  }

  TEST_CASE("the destructor of a handle asks its fiber to stop and waits for it") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      bool unwound = false;
      {
        auto f = spawn([&] {
          try {
            sleep_for(1h);
          } catch (const vigil::stopped&) {
            const vigil::this_fiber::shield shield;
            sleep_for(2s);
            unwound = true;
            throw;
          }
        });
        sleep_for(1s);
      }
      CHECK(unwound);
      CHECK(since(start) == 3s);
    });
  }

  TEST_CASE("moving onto a handle stops and joins the fiber it held") {
    in_virtual([] {
      auto f = spawn([] { sleep_for(1h); });
      vigil::testing::settle();
      f = spawn([] { sleep_for(1s); });
      f.join();
      CHECK(vigil::clock::now() == vigil::testing::epoch + 1s);
    });
  }

  TEST_CASE("a result that nobody takes is destroyed, joined or not") {
    const auto shared = std::make_shared<int>(1);
    in_runtime({.workers = {1, 2}}, [&] {
      for (int i = 0; i < 10; ++i) {
        go([p = shared] { return p; });
        spawn([p = shared] { return p; }).detach();
        auto ended = spawn([p = shared] { return p; });
        while (!ended.join_for(0s))
          vigil::this_fiber::yield();
        ended.detach();
        auto dropped = spawn([p = shared] { return p; });
      }
      sleep_for(5ms);
    });
    CHECK(shared.use_count() == 1);
  }

  TEST_CASE("a detached fiber goes on and its exception goes to on_unhandled") {
    static std::atomic<int> seen{0};
    seen.store(0);
    vigil::testing::virtual_options how;
    how.runtime.on_unhandled = [](std::exception_ptr) { seen.fetch_add(1); };
    in_virtual(how, [] {
      auto running = spawn([] {
        sleep_for(1s);
        throw 1;
      });
      running.detach();
      CHECK_FALSE(running.joinable());
      auto ended = spawn([] { throw 2; });
      vigil::testing::settle();
      CHECK(seen.load() == 0);
      ended.detach();
      CHECK(seen.load() == 1);
      sleep_for(2s);
      CHECK(seen.load() == 2);
      go([] { throw 3; });
      {
        auto dropped = spawn([] { throw 4; });
      }
      vigil::testing::settle();
      CHECK(seen.load() == 4);
    });
  }

  TEST_CASE("a fiber that is stopped before it ever ran still runs and sees it at its first wait") {
    in_virtual([] {
      bool began = false;
      auto f = spawn([&] {
        began = true;
        CHECK(vigil::this_fiber::stop_requested());
        sleep_for(1s);
      });
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(began);
    });
  }

  TEST_CASE("a joiner that is stopped keeps its handle") {
    in_virtual([] {
      auto child = spawn([] {
        sleep_for(10s);
        return 5;
      });
      bool still = false;
      auto parent = spawn([&] {
        try {
          static_cast<void>(child.join());
        } catch (const vigil::stopped&) {
          still = child.joinable();
          throw;
        }
      });
      sleep_for(1s);
      parent.request_stop();
      CHECK_THROWS_AS(parent.join(), vigil::cancelled);
      CHECK(still);
      CHECK(child.join() == 5);
    });
  }

  TEST_CASE("stop, end and join race without losing or doubling anything") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      for (int round = 0; round < rounds(2000); ++round) {
        auto f = spawn([round] {
          sleep_for(std::chrono::nanoseconds(round % 50 * 200));
          return round;
        });
        auto stopper = spawn([&] { f.request_stop(); });
        if (round % 2 == 0) vigil::this_fiber::yield();
        stopper.join();
        int result = round;
        try {
          result = f.join();
        } catch (const vigil::cancelled&) {
        }
        CHECK(result == round);
      }
    });
  }
}
