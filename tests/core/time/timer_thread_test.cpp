#include "core/time/timer_stress.hpp"

#include <thread>

namespace {

using namespace vigil::testing_support;

vigil::options with_workers(std::size_t n) {
  vigil::options o;
  o.workers = n;
  return o;
}

}  // namespace

TEST_SUITE("timers with channels and plain threads") {
  TEST_CASE("a thread receives from a fiber's timer, never early, and stops and resets it") {
    in_runtime({.workers = {1, 2}}, [] {
      timer t(1h);
      ticker k(100us);
      const auto deadline_after = after(1ms);
      plain_thread thread([&, t, k, deadline_after]() mutable {
        const auto got = deadline_after.recv();
        REQUIRE(vigil::clock::now() >= got.value());
        REQUIRE(t.remaining() > 59min);
        for (int i = 0; i < rounds(100); ++i) {
          const auto before = vigil::clock::now();
          REQUIRE(t.reset(100us) == (i == 0));
          const instant at = t.channel().recv().value();
          REQUIRE(at >= before + 100us);
          REQUIRE(vigil::clock::now() >= at);
          const instant tick = k.channel().recv().value();
          REQUIRE(vigil::clock::now() >= tick);
        }
        t.reset(1h);
        REQUIRE(t.channel().recv_for(1us).is_timeout());
        REQUIRE(vigil::select(on_recv(t.channel()), on_recv(k.channel())) == 1);
        REQUIRE(t.stop());
        REQUIRE_FALSE(t.stop());
        REQUIRE(k.stop());
        REQUIRE_FALSE(k.channel().try_recv());
      });
      thread.join();
    });
  }

  TEST_CASE("threads and fibers on one ticker get each tick once") {
    in_runtime({.workers = {1, 2}}, [] {
      ticker t(20us);
      const instant first = t.deadline();
      const auto end = vigil::make_channel<void>();
      log_of_values log;
      plain_thread one([&, c = t.channel()] { receive_all(c, end, log); });
      plain_thread two([&, c = t.channel()] { receive_all(c, end, log); });
      auto three = vigil::spawn([&, c = t.channel()] { receive_all(c, end, log); });
      while (log.sorted().size() < 100)
        sleep_for(1ms);
      end.close();
      three.join();
      one.join();
      two.join();
      const auto got = log.sorted();
      CHECK(all_differ(got));
      for (const instant at : got)
        REQUIRE((at - first) % 20us == 0ns);
      CHECK(static_cast<std::int64_t>(got.size() + t.missed()) == (t.deadline() - first) / 20us);
    });
  }

  TEST_CASE("a thread that waits on a pending one when the runtime ends finds it closed") {
    for (const bool ticks : {false, true}) {
      std::vector<std::thread> threads;
      std::atomic<int> told{0};
      timer kept;
      vigil::run(with_workers(2), [&] {
        timer t(1h);
        ticker k(1h);
        kept = t;
        const timer_receiver c = ticks ? k.channel() : t.channel();
        const auto other = after(1h);
        threads.emplace_back([&, c] { told.fetch_add(c.recv().has_value() ? 0 : 1); });
        threads.emplace_back([&, c] { told.fetch_add(c.recv_for(1h).is_closed() ? 1 : 0); });
        threads.emplace_back([&, c = other] {
          vigil::select(on_recv(vigil::make_channel<int>()),
                        on_recv(c, [&](std::optional<instant> v) { told.fetch_add(v ? 0 : 1); }));
        });
        // Both channels are waited on; the second thread may still be on its way.
        while (pending() < 2)
          vigil::this_fiber::yield();
      });
      for (auto& thread : threads)
        thread.join();
      CHECK(told.load() == 3);
      CHECK_THROWS_AS(kept.reset(1s), vigil::runtime_gone);
    }
  }

  TEST_CASE("threads that wait again and again across the end of a runtime all hear of it") {
    for (int round = 0; round < rounds(60); ++round) {
      std::vector<std::thread> threads;
      std::atomic<int> ended{0};
      vigil::run(with_workers(2), [&] {
        ticker k(1us);
        timer t(1us);
        for (int i = 0; i < 2; ++i) {
          threads.emplace_back([&, k, t, i]() mutable {
            const auto c = i == 0 ? k.channel() : t.channel();
            try {
              while (c.recv()) {
                if (i == 1) t.reset(1us);
              }
            } catch (const vigil::runtime_gone&) {  // thrown by the reset
              CHECK(i == 1);
            }
            ended.fetch_add(1);
          });
        }
        sleep_for(microseconds(round * 5));
      });
      for (auto& thread : threads)
        thread.join();
      CHECK(ended.load() == 2);
    }
  }

  // Go: TestTimerFromOutsideBubble, TestTimerMovedOut.
  TEST_CASE("a fiber of another runtime waits on one as well, and hears of the end") {
    vigil::runtime other(with_workers(1));
    const auto ready = vigil::make_channel<timer>(1);
    std::atomic<int> received{0};
    std::atomic<bool> closed{false};
    std::thread thread([&] {
      other.run([&] {
        timer t = ready.recv().value();
        for (int i = 0; i < 100; ++i) {
          const instant at = t.channel().recv().value();
          REQUIRE(vigil::clock::now() >= at);
          received.fetch_add(1);
          REQUIRE_FALSE(t.reset(10us));
        }
        t.reset(1h);
        received.fetch_add(1);
        closed.store(!t.channel().recv().has_value());
      });
    });
    vigil::run(with_workers(2), [&] {
      ready.send(timer(1ms));
      while (received.load() != 101 || pending() < 1)
        vigil::this_fiber::yield();
    });
    thread.join();
    CHECK(closed.load());
  }

  // Go: stop and wait.
  TEST_CASE("a scoped_timer on a thread waits for the callback that is running") {
    in_runtime({.workers = {1, 2}}, [](vigil::runtime& rt) {
      for (int round = 0; round < rounds(100); ++round) {
        const auto begun = vigil::make_channel<void>(1);
        std::atomic<bool> in_scope{true};
        std::atomic<bool> ended{false};
        plain_thread thread([&] {
          {
            const vigil::scoped_timer t = rt.after_func(0s, [&] {
              begun.send();
              sleep_for(50us);
              REQUIRE(in_scope.load());
              ended.store(true);
            });
            begun.recv();
          }
          in_scope.store(false);
          REQUIRE(ended.load());
        });
        thread.join();
      }
    });
  }
}
