// A call that gives its worker away: what it sees, keeps and promises.
// src/core/sched/worker/turn_budget.hpp
#include "core/runtime/turn_helpers.hpp"

#include <vector>

using namespace vigil::testing_support;
using vigil::make_channel;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::otherwise;
using vigil::select;
using vigil::select_ordered;
using vigil::testing::run_virtual;

namespace {

// Uses a static mutex, as programs do: what is left of it must not reach the next run.
vigil::mutex& common_mutex() {
  static vigil::mutex m;
  return m;
}

// A runtime in which the second call in a turn gives way.
template <class F>
void with_little(F body) {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    vigil::testing::virtual_options o;
    o.seed = seed;
    o.runtime.turn_budget = 1;
    run_virtual(o, body);
  }
}

// Leaves the caller so that its next call that may wait gives way.
void spend_turn() {
  auto other = spawn([] {});
  other.join();  // a switch
  vigil::sleep_for(0s);
}

}  // namespace

TEST_SUITE("a call that gives way") {
  TEST_CASE("it looks at nothing before: what others do meanwhile is what it finds") {
    with_little([] {
      const auto first = make_channel<int>(1);
      const auto second = make_channel<int>(1);
      second.send(2);
      spend_turn();
      auto sender = spawn([&] { CHECK(first.try_send(1)); });
      CHECK(select_ordered(on_recv(first), on_recv(second)) == 0);
      CHECK(second.size() == 1);
      sender.join();

      spend_turn();
      auto thief = spawn([&] { CHECK(second.try_recv()); });
      CHECK_FALSE(second.recv_for(0s));
      thief.join();

      vigil::mutex m;
      spend_turn();
      auto locker = spawn([&] {
        CHECK(m.try_lock());
        vigil::sleep_for(1ms);
        m.unlock();
      });
      m.lock();
      CHECK(locker.join_for(0s));
      m.unlock();
      locker.join();

      vigil::semaphore permits(1);
      spend_turn();
      auto taker = spawn([&] { CHECK(permits.try_acquire()); });
      CHECK_FALSE(permits.try_acquire_for(0s));
      taker.join();
    });
  }

  TEST_CASE("time limits count from the call") {
    with_little([] {
      const auto c = make_channel<int>();
      const auto begin = vigil::clock::now();
      spend_turn();
      auto other = spawn([] { vigil::sleep_for(3ms); });
      CHECK_FALSE(c.recv_for(5ms));
      CHECK(vigil::clock::now() - begin == 5ms);
      spend_turn();
      CHECK(select(on_recv(c), on_timeout(5ms)) == 1);
      CHECK(vigil::clock::now() - begin == 10ms);
      spend_turn();
      vigil::sleep_for(5ms);
      CHECK(vigil::clock::now() - begin == 15ms);
      vigil::case_list list;
      list.add(on_recv(c));
      list.add(on_timeout(5ms));
      for (int i = 1; i <= 3; ++i) {
        spend_turn();
        CHECK(select(list) == 1);
        CHECK(vigil::clock::now() - begin == 15ms + i * 5ms);
      }
      other.join();
    });
  }

  TEST_CASE("a limit that passes meanwhile loses against a value that is there") {
    vigil::options o;
    o.workers = 1;
    o.turn_budget = 1;
    vigil::run(o, [] {
      const auto c = make_channel<int>(1);
      const auto late = [&](bool with_value) {
        spend_turn();
        // Keeps the thread, and the caller's turn with it, beyond the limit.
        return spawn([&c, with_value] {
          std::this_thread::sleep_for(3ms);
          if (with_value) CHECK(c.try_send(1));
        });
      };
      {
        auto other = late(true);
        CHECK(c.recv_for(1ms));
        other.join();
      }
      {
        auto other = late(true);
        CHECK(select(on_timeout(1ms), on_recv(c)) == 1);
        other.join();
      }
      {
        auto other = late(false);
        CHECK_FALSE(c.recv_for(1ms));
        other.join();
      }
    });
  }

  TEST_CASE("it keeps the channel and the context that it was given") {
    with_little([] {
      auto c = make_channel<int>(1);
      c.send(7);
      spend_turn();
      auto other = spawn([&] { c = {}; });
      CHECK(c.recv() == 7);
      other.join();

      auto d = make_channel<int>(1);
      d.send(7);
      spend_turn();
      auto another = spawn([&] { d = {}; });
      CHECK(select(on_recv(d), otherwise()) == 0);
      another.join();

      auto made = std::make_unique<vigil::cancellable>(vigil::with_cancel(vigil::background()));
      const auto e = make_channel<int>();
      spend_turn();
      auto owner = spawn([&] {
        made->cancel();
        made.reset();
      });
      CHECK_THROWS_AS(e.recv(made->ctx), vigil::cancelled);
      owner.join();
    });
  }

  TEST_CASE("it is no stop: a fiber that was asked to stop drains its channel, in turns") {
    in_virtual([] {
      const auto c = make_channel<int>(many_calls);
      for (int i = 0; i < many_calls; ++i)
        c.send(i);
      int received = 0;
      bool had_turn = false;
      int at_turn = 0;
      auto drain = spawn([&] {
        try {
          vigil::sleep_for(1h);
        } catch (const vigil::stopped&) {
        }
        auto other = spawn([&] {
          had_turn = true;
          at_turn = received;
        });
        while (c.recv_for(0s))
          ++received;
        CHECK(had_turn);
        throw vigil::stopped();
      });
      vigil::testing::settle();
      drain.request_stop();
      CHECK_THROWS_AS(drain.join(), vigil::cancelled);
      CHECK(received == many_calls);
      CHECK(at_turn < many_calls);
    });
  }

  TEST_CASE("the shutdown's drain goes on, in turns") {
    int received = 0;
    bool had_turn = false;
    run_virtual([&] {
      const auto c = make_channel<int>(many_calls);
      for (int i = 0; i < many_calls; ++i)
        c.send(i);
      vigil::go([c, &received] {
        try {
          vigil::sleep_for(1h);
        } catch (const vigil::stopped&) {
          while (c.recv_for(0s))
            ++received;
          throw;
        }
      });
      vigil::go([&] {
        try {
          vigil::sleep_for(1h);
        } catch (const vigil::stopped&) {
          had_turn = received < many_calls;
          throw;
        }
      });
      vigil::testing::settle();
    });
    CHECK(received == many_calls);
    CHECK(had_turn);
  }

  TEST_CASE("it happens under a shield and while an exception unwinds the stack") {
    in_virtual([] {
      {
        const vigil::this_fiber::shield shield;
        check_gives_way("under a shield", [] { vigil::sleep_for(0s); });
      }

      struct loops {
        int& calls;

        ~loops() {
          const auto c = make_channel<int>(1);
          calls = calls_before_others([&] {
            c.send(1);
            c.recv();
          });
        }
      };

      int calls = 0;
      auto unwound = spawn([&] {
        try {
          const loops l{calls};
          throw 1;
        } catch (int) {
        }
      });
      unwound.join();
      CHECK(calls > 80);
      CHECK(calls < many_calls);
    });
  }

  TEST_CASE("it never happens under no_park") {
    in_virtual([] {
      const auto c = make_channel<int>(1);
      vigil::mutex m;
      bool had_turn = false;
      auto other = spawn([&] { had_turn = true; });
      {
        const vigil::this_fiber::no_park guard;
        for (int i = 0; i < many_calls; ++i) {
          c.send(1);
          c.recv();
          select(on_recv(c), otherwise());
          const std::lock_guard lock(m);
        }
        CHECK_FALSE(had_turn);
      }
      other.join();
    });
  }

  TEST_CASE("a callback gives way as a fiber does") {
    in_virtual([] {
      int calls = 0;
      vigil::latch done(1);
      auto t = vigil::after_func(1ms, [&] {
        calls = calls_before_others([] { vigil::sleep_for(0s); });
        done.count_down();
      });
      done.wait();
      CHECK(calls < many_calls);
    });
  }

  TEST_CASE("a plain thread has no budget, and gets one when it becomes a worker") {
    std::thread plain([] {
      const auto c = make_channel<int>(1);
      vigil::mutex m;
      for (int i = 0; i < many_calls; ++i) {
        c.send(1);
        c.recv();
        select(on_recv(c), otherwise());
        const std::lock_guard lock(m);
      }
      run_virtual([] { check_gives_way("after a run", [] { vigil::sleep_for(0s); }); });
      for (int i = 0; i < many_calls; ++i) {
        c.send(1);
        c.recv();
      }
      run_virtual([] { check_gives_way("after another", [] { vigil::sleep_for(0s); }); });
    });
    plain.join();
  }

  TEST_CASE("one fiber that is alone looks at timers, and goes on") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> fired{false};
      auto t = vigil::after_func(1ms, [&] { fired = true; });
      const auto c = make_channel<int>(1);
      while (!fired.load()) {
        c.send(1);
        c.recv();
      }
      t.stop_and_wait();
    });
  }

  TEST_CASE("the seed decides what runs, whatever happened to a mutex before") {
    const auto trace = [](std::uint64_t seed) {
      std::string order;
      run_virtual({.seed = seed}, [&] {
        std::vector<vigil::fiber<>> all;
        for (const char name : {'a', 'b', 'c'}) {
          all.push_back(spawn([&order, name] {
            for (int i = 0; i < 1500; ++i) {
              const std::lock_guard lock(common_mutex());
              if (order.empty() || order.back() != name) order += name;
            }
          }));
        }
        for (auto& f : all)
          f.join();
      });
      return order;
    };
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const std::string once = trace(seed);
      CHECK(once.size() > 6);
      for (int i = 0; i < 17; ++i)
        const std::lock_guard lock(common_mutex());
      CHECK(trace(seed) == once);
    }
  }
}
