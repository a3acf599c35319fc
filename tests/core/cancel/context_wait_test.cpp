// Waits under a context: the winner of several ends, the view of a plain thread, and the
// resources that a wait keeps.
#include "core/cancel/cancel_test.hpp"

#include <thread>

using namespace vigil::testing_support;

TEST_SUITE("a wait under a context") {
  TEST_CASE("that can complete at once does, although the context is done") {
    in_virtual([] {
      auto it = with_cancel(background());
      it.cancel();
      const auto c = make_channel<int>(1);
      c.send(7, it.ctx);
      CHECK(c.recv(it.ctx) == 7);
      sleep_for(0s, it.ctx);
      sleep_for(-1s, it.ctx);
      vigil::sleep_until(clock::now(), it.ctx);
      auto f = vigil::spawn([] { return 3; });
      settle();
      CHECK(f.join(it.ctx) == 3);
    });
  }

  TEST_CASE("that is a send leaves the value in the caller's hand when it is cancelled") {
    in_virtual([] {
      auto it = with_timeout(background(), 1s);
      const auto c = make_channel<std::unique_ptr<int>>();
      auto value = std::make_unique<int>(7);
      CHECK_THROWS_AS(c.send(std::move(value), it.ctx), cancelled);
      REQUIRE(value != nullptr);
      CHECK(*value == 7);
      CHECK_FALSE(c.try_recv());
    });
  }

  TEST_CASE("that is a join leaves the handle joinable when it is cancelled") {
    in_virtual([] {
      auto f = vigil::spawn([] {
        sleep_for(2s);
        return 7;
      });
      CHECK_THROWS_AS(f.join(with_timeout(background(), 1s).ctx), cancelled);
      REQUIRE(f.joinable());
      CHECK(f.join() == 7);
    });
  }

  TEST_CASE("under a context that is never done waits as without one") {
    in_virtual([] {
      const context never = vigil::without_cancel(background());
      const auto c = make_channel<int>();
      vigil::go([c] { c.send(1); });
      CHECK(c.recv(never) == 1);
      sleep_for(1s, never);
    });
  }

  TEST_CASE("of a plain thread is cancelled as well") {
    auto it = with_cancel(background());
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (const bool sends : {false, true}) {
      threads.emplace_back([&, sends] {
        const auto c = make_channel<int>();
        try {
          sends ? c.send(1, it.ctx) : static_cast<void>(c.recv(it.ctx));
        } catch (const cancelled&) {
          ++ended;
        }
      });
    }
    while (waiters_under(it.ctx) < 2)
      std::this_thread::yield();
    it.cancel();
    for (auto& t : threads)
      t.join();
    CHECK(ended.load() == 2);
    CHECK_THROWS_AS(make_channel<int>().recv(it.ctx), cancelled);
  }

  TEST_CASE("of a plain thread that joins a fiber is cancelled, or brings the result") {
    vigil::runtime rt(one_worker());
    auto stop_it = with_cancel(background());
    std::thread joiner;
    std::atomic<int> got{0};
    std::atomic<bool> gave_up{false};
    rt.run([&] {
      const auto guard = rt.make_work_guard();
      auto quick = std::make_shared<vigil::fiber<int>>(vigil::spawn([] {
        sleep_for(2ms);
        return 7;
      }));
      auto slow = std::make_shared<vigil::fiber<>>(vigil::spawn([] { sleep_for(24h); }));
      joiner = std::thread([&, quick, slow] {
        auto it = with_cancel(background());
        got = quick->join(it.ctx);
        try {
          slow->join(stop_it.ctx);
        } catch (const cancelled&) {
          gave_up = true;
        }
        slow->request_stop();
      });
      while (waiters_under(stop_it.ctx) == 0)
        sleep_for(100us);
      stop_it.cancel();
      while (!gave_up)
        sleep_for(100us);
      joiner.join();
    });
    CHECK(got.load() == 7);
  }

  TEST_CASE("in a catch block or under a shield is cancelled all the same") {
    in_virtual([] {
      auto it = with_timeout(background(), 1s);
      try {
        throw failure{1};
      } catch (const failure&) {
        CHECK_THROWS_AS(sleep_for(24h, it.ctx), cancelled);
      }
      const vigil::this_fiber::shield s;
      CHECK_THROWS_AS(sleep_for(24h, it.ctx), cancelled);
    });
  }

  TEST_CASE("keeps the context, whatever happens to the handle that it was given") {
    in_virtual([] {
      context ctx = with_timeout(background(), 1s).ctx;
      vigil::go([&] { ctx = context(); });
      CHECK_THROWS_AS(sleep_for(24h, ctx), cancelled);
      CHECK_FALSE(static_cast<bool>(ctx));
    });
  }

  TEST_CASE("needs no memory of its own in the context: a thousand, cancelled, each once") {
    in_virtual([] {
      auto it = with_cancel(background());
      int ended = 0;
      for (int i = 0; i < 1000; ++i) {
        vigil::go([&, ctx = it.ctx] {
          try {
            sleep_for(24h, ctx);
          } catch (const cancelled&) {
            ++ended;
          }
        });
      }
      settle();
      CHECK(waiters_under(it.ctx) == 1000);
      it.cancel();
      settle();
      CHECK(ended == 1000);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("and value, deadline and cancel at once: one of them, and no value is lost") {
    in_runtime({{2, 4}, {}}, [] {
      int cancelled_ones = 0;
      for (int round = 0; round < rounds(3000); ++round) {
        auto parent = with_cancel(background());
        auto child = with_timeout(parent.ctx, std::chrono::microseconds(round % 60));
        const auto c = make_channel<std::unique_ptr<int>>();
        auto sender = vigil::spawn([&] {
          auto value = std::make_unique<int>(1);
          const auto sent = static_cast<bool>(c.send_for(std::move(value), 20us));
          CHECK(sent == (value == nullptr));
          return sent;
        });
        auto canceller = vigil::spawn([&] { (round % 2 == 0 ? parent : child).cancel(); });
        bool got = false;
        try {
          got = c.recv(child.ctx).has_value();
        } catch (const cancelled&) {
          ++cancelled_ones;
        }
        CHECK(sender.join() == got);
        canceller.join();
        CHECK(waiters_under(child.ctx) == 0);
        CHECK_FALSE(c.try_recv());
      }
      CHECK(cancelled_ones > 0);
    });
  }
}
