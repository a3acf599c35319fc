// timer::stop_and_wait: no run is under way when it returns.
#include "core/sched/wait/cancel_tree.hpp"
#include "core/timer/timer_test.hpp"

#include <stdexcept>

using namespace vigil::testing_support;

TEST_SUITE("timer stop_and_wait") {
  TEST_CASE("waits for the callback that is running and is false") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(1s, [] { sleep_for(4s); });
      sleep_for(2s);
      CHECK_FALSE(t.stop_and_wait());
      CHECK(since(start) == 5s);
    });
  }

  TEST_CASE("is true at once for a pending timer and false at once for one that has run") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(1s, [] {});
      CHECK(t.stop_and_wait());
      t.reset(1s);
      sleep_for(2s);
      CHECK_FALSE(t.stop_and_wait());
      CHECK(since(start) == 2s);
    });
  }

  TEST_CASE("several may wait for the same run") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(1s, [] { sleep_for(4s); });
      sleep_for(2s);
      std::vector<vigil::fiber<>> waiters;
      for (int i = 0; i < 5; ++i) {
        waiters.push_back(vigil::spawn([&] {
          CHECK_FALSE(t.stop_and_wait());
          CHECK(since(start) == 5s);
        }));
      }
      for (auto& f : waiters)
        f.join();
    });
  }

  TEST_CASE("inside its own callback is an error that names the call to use") {
    in_virtual([] {
      bool thrown = false;
      timer t;
      t = after_func(1s, [&] {
        try {
          t.stop_and_wait();
        } catch (const vigil::wrong_place& e) {
          thrown = std::string(e.what()).find("stop()") != std::string::npos;
        }
      });
      sleep_for(2s);
      CHECK(thrown);
    });
  }

  TEST_CASE("inside the callback of another timer waits") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer slow = after_func(1s, [] { sleep_for(4s); });
      bool done = false;
      after_func(2s, [&] {
        CHECK_FALSE(slow.stop_and_wait());
        CHECK(since(start) == 5s);
        done = true;
      });
      sleep_for(10s);
      CHECK(done);
    });
  }

  TEST_CASE("from a plain thread waits too") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> begun{false};
      std::atomic<bool> ended{false};
      timer t = after_func(0s, [&] {
        begun.store(true);
        sleep_for(5ms);
        ended.store(true);
      });
      while (!begun.load())
        vigil::this_fiber::yield();
      std::atomic<bool> returned{false};
      std::thread waiter([&] {
        CHECK_FALSE(t.stop_and_wait());
        CHECK(ended.load());
        returned.store(true);
      });
      while (!returned.load())
        sleep_for(1ms);
      waiter.join();
    });
  }

  TEST_CASE("ends early by a stop of the waiting fiber and leaves no waiter behind") {
    in_virtual([] {
      timer t = after_func(1s, [] { sleep_for(4s); });
      sleep_for(2s);
      auto f = vigil::spawn([&] { t.stop_and_wait(); });
      sleep_for(1s);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      sleep_for(10s);  // the run ends with nobody left to notify
    });
  }

  TEST_CASE("with a context ends when that is done, and leaves no waiter behind") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto slow = after_func(1ms, [] { sleep_for(10s); });
      sleep_for(2ms);
      const auto it = vigil::with_timeout(vigil::background(), 1s);
      CHECK_THROWS_AS(static_cast<void>(slow.stop_and_wait(it.ctx)), vigil::cancelled);
      CHECK(since(start) == 1s + 2ms);
      CHECK_FALSE(slow.stop_and_wait(vigil::background()));
      CHECK(since(start) == 10s + 1ms);
      // A call that need not wait does not, whatever the context.
      CHECK_FALSE(slow.stop_and_wait(it.ctx));
      auto pending = after_func(1s, [] {});
      CHECK(pending.stop_and_wait(it.ctx));
      CHECK(timer(1s).stop_and_wait(it.ctx));
      CHECK_FALSE(timer().stop_and_wait(it.ctx));
      CHECK_THROWS_AS(static_cast<void>(slow.stop_and_wait(vigil::context())),
                      std::invalid_argument);
    });
  }

  TEST_CASE("with a context ends from a plain thread, too") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      auto may_end = vigil::make_channel<void>();
      auto begun = vigil::make_channel<void>();
      auto slow = after_func(0s, [=] {
        begun.send();
        may_end.recv();
      });
      begun.recv();
      const auto it = vigil::with_cancel(vigil::background());
      std::thread waiting([&] {
        CHECK_THROWS_AS(static_cast<void>(slow.stop_and_wait(it.ctx)), vigil::cancelled);
      });
      while (vigil::detail::cancel_node_of(it.ctx)->waiters() == 0)
        sleep_for(100us);
      it.cancel();
      waiting.join();
      may_end.send();
      CHECK_FALSE(slow.stop_and_wait());
    });
  }

  // No call of the API has a limit yet.
  TEST_CASE("with a time ends when that is over, and leaves no waiter behind") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto* const record = vigil::detail::after_func(
          1'000'000, vigil::detail::callback([] { sleep_for(10s); }), vigil::site::current());
      const timer slow(record);
      sleep_for(2ms);
      CHECK_FALSE(vigil::detail::stop_and_wait(record, vigil::detail::within(1s)));
      CHECK(since(start) == 1s + 2ms);
      CHECK_FALSE(vigil::detail::stop_and_wait(record, vigil::detail::within(0s)));
      CHECK(since(start) == 1s + 2ms);
      CHECK_FALSE(vigil::detail::stop_and_wait(record, vigil::detail::within(1h)));
      CHECK(since(start) == 10s + 1ms);
    });
  }

  TEST_CASE("no run is under way when it returns, whatever the race") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      for (int round = 0; round < rounds(2000); ++round) {
        auto guarded = std::make_unique<std::atomic<int>>(0);
        timer t = after_func(nanoseconds(round % 20 * 1000), [p = guarded.get()] {
          p->fetch_add(1);
          vigil::this_fiber::yield();
          p->fetch_add(1);
        });
        if (round % 3 == 0) vigil::this_fiber::yield();
        if (round % 3 == 1) sleep_for(10us);
        const bool prevented = t.stop_and_wait();
        CHECK(guarded->load() == (prevented ? 0 : 2));
      }
    });
  }
}
