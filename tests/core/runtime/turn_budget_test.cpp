// The budget of calls that are served at once: which calls give the worker away, and how.
// src/core/sched/worker/turn_budget.hpp
#include "core/runtime/runtime_test.hpp"

#include <vigil/clocks.hpp>
#include <vigil/rate_limiter.hpp>
#include <vigil/single_flight.hpp>

#include <functional>
#include <optional>
#include <vector>

using namespace vigil::testing_support;
using vigil::make_channel;
using vigil::on_done;
using vigil::on_recv;
using vigil::on_send;
using vigil::on_timeout;
using vigil::otherwise;
using vigil::select;
using vigil::select_ordered;
using vigil::testing::run_virtual;

namespace {

constexpr int many_calls = 5000;  // more than two budgets

// Makes the call until another fiber, which is ready all the time, has had a turn.
// Returns the number of calls; `many_calls` if it had none.
template <class F>
int calls_before_others(F call) {
  bool had_turn = false;
  auto other = spawn([&] { had_turn = true; });
  int calls = 0;
  while (!had_turn && calls < many_calls) {
    call();
    ++calls;
  }
  other.join();
  return calls;
}

template <class F>
void check_gives_way(const char* what, F call) {
  const int calls = calls_before_others(call);
  CHECK_MESSAGE(calls < many_calls, what, " never gives its worker away");
  CHECK_MESSAGE(calls > 80, what, " gives its worker away too soon");
}

template <class F>
void check_keeps(const char* what, F call) {
  CHECK_MESSAGE(calls_before_others(call) == many_calls, what, " gives its worker away");
}

// Uses a static mutex, as programs do: what is left of it must not reach the next run.
vigil::mutex& common_mutex() {
  static vigil::mutex m;
  return m;
}

}  // namespace

TEST_SUITE("a turn's budget") {
  TEST_CASE("calls on a channel that are served at once give the worker away") {
    in_virtual([] {
      const auto c = make_channel<int>(4);
      const auto closed = make_channel<int>();
      closed.close();
      const auto made = vigil::with_cancel(vigil::background());
      const vigil::context& ctx = made.ctx;
      check_gives_way("send and recv", [&] {
        c.send(1);
        c.recv();
      });
      check_gives_way("send and recv under a context", [&] {
        c.send(1, ctx);
        c.recv(ctx);
      });
      check_gives_way("send_for and recv_until", [&] {
        CHECK(c.send_for(1, 1s));
        CHECK(c.recv_until(vigil::clock::now() + 1s));
      });
      check_gives_way("recv from a closed channel", [&] { CHECK_FALSE(closed.recv()); });
      check_gives_way("recv_for that is over", [&] { CHECK_FALSE(c.recv_for(0s)); });
      check_gives_way("range-for", [&] {
        for (int v : {1, 2, 3})
          c.send(v);
        int seen = 0;
        for (const int v : c) {
          static_cast<void>(v);
          if (++seen == 3) break;
        }
      });
      check_gives_way("recv from the channel of a timer", [&] { vigil::after(0s).recv(); });
    });
  }

  TEST_CASE("a select that is served at once gives the worker away") {
    in_virtual([] {
      const auto c = make_channel<int>(4);
      const auto other = make_channel<int>();
      const auto made = vigil::with_cancel(vigil::background());
      const vigil::context& ctx = made.ctx;
      check_gives_way("otherwise",
                      [&] { select(on_recv(c, [](auto) { FAIL("taken"); }), otherwise()); });
      check_gives_way("otherwise alone", [] { select(otherwise()); });
      check_gives_way("a timeout that is over",
                      [&] { CHECK(select(on_recv(c), on_timeout(0s)) == 1); });
      check_gives_way("a ready case", [&] {
        select(on_send(c, 1), on_recv(other));
        select_ordered(on_recv(c), on_recv(other));
      });
      vigil::case_list list;
      list.add(on_recv(c));
      list.add(otherwise());
      check_gives_way("a list", [&] { CHECK(select(list) == 1); });
      made.cancel();
      check_gives_way("a done context", [&] { CHECK(select(on_recv(c), on_done(ctx)) == 1); });
    });
  }

  TEST_CASE("locks and permits that are free give the worker away") {
    in_virtual([] {
      vigil::mutex m;
      vigil::shared_mutex s;
      vigil::semaphore permits(2);
      const auto made = vigil::with_cancel(vigil::background());
      const vigil::context& ctx = made.ctx;
      check_gives_way("mutex", [&] { const std::lock_guard lock(m); });
      check_gives_way("mutex under a context", [&] {
        m.lock(ctx);
        m.unlock();
      });
      check_gives_way("try_lock_for", [&] {
        CHECK(m.try_lock_for(0s));
        m.unlock();
      });
      check_gives_way("two mutexes", [&, n = std::make_shared<vigil::mutex>()] {
        const std::scoped_lock lock(m, *n);
      });
      check_gives_way("shared_mutex", [&] { const std::lock_guard lock(s); });
      check_gives_way("shared_mutex, shared", [&] {
        s.lock_shared();
        s.unlock_shared();
      });
      check_gives_way("semaphore", [&] {
        permits.acquire();
        permits.release();
      });
      check_gives_way("try_acquire_for", [&] { CHECK_FALSE(permits.try_acquire_for(0s, 3)); });
    });
  }

  TEST_CASE("other waits that are over when they begin give the worker away") {
    in_virtual([] {
      vigil::wait_group none;
      vigil::latch open(0);
      vigil::rate_limiter free(vigil::rate::unlimited(), 1);
      vigil::single_flight<int, int> flights;
      vigil::group members(vigil::background());
      auto parked = spawn([] { vigil::sleep_for(1h); });
      auto callback = vigil::after_func(1h, [] {});
      check_gives_way("sleep_for(0s)", [] { vigil::sleep_for(0s); });
      check_gives_way("sleep_until the past", [] { vigil::sleep_until(vigil::clock::now() - 1s); });
      check_gives_way("wall::sleep_until the past",
                      [] { vigil::wall::sleep_until(vigil::wall_clock::now() - 1s); });
      check_gives_way("wait_group", [&] { none.wait(); });
      check_gives_way("latch", [&] { open.wait(); });
      check_gives_way("rate_limiter", [&] { free.wait(); });
      check_gives_way("single_flight", [&] { flights.call(1, [] { return 1; }); });
      check_gives_way("join_for(0s)", [&] { CHECK_FALSE(parked.join_for(0s)); });
      check_gives_way("wait_any_for(0s)", [&] { CHECK_FALSE(vigil::wait_any_for(0s, parked)); });
      check_gives_way("wait_all_for(0s)", [&] { CHECK_FALSE(vigil::wait_all_for(0s, parked)); });
      check_gives_way("group::wait_for", [&] { CHECK(members.wait_for(1s)); });
      check_gives_way("stop_and_wait", [&] { callback.stop_and_wait(); });
      parked.request_stop();
      CHECK_THROWS_AS(parked.join(), vigil::cancelled);
    });
  }

  TEST_CASE("a loop over ever new objects gives the worker away") {
    in_virtual([] {
      check_gives_way("new channels", [] {
        const auto c = make_channel<int>(1);
        c.send(1);
      });
      check_gives_way("new mutexes", [] {
        vigil::mutex m;
        const std::lock_guard lock(m);
      });
      check_gives_way("new semaphores", [] { vigil::semaphore(1).acquire(); });
    });
    // The same where a lock is counted by its mutex.
    in_runtime({.workers = {1}}, [] {
      CHECK(calls_before_others([] {
              vigil::mutex m;
              const std::lock_guard lock(m);
            }) < many_calls);
      CHECK(calls_before_others([] {
              vigil::shared_mutex m;
              const std::lock_guard lock(m);
            }) < many_calls);
      std::vector<std::unique_ptr<vigil::mutex>> all;
      for (int i = 0; i < 100; ++i)
        all.push_back(std::make_unique<vigil::mutex>());
      std::size_t next = 0;
      CHECK(calls_before_others([&] { const std::lock_guard lock(*all[next++ % all.size()]); }) <
            many_calls);
      vigil::mutex one;
      CHECK(calls_before_others([&] { const std::lock_guard lock(one); }) < many_calls);
      vigil::shared_mutex shared;
      shared.lock_shared();  // a reader that stays
      CHECK(calls_before_others([&] {
              shared.lock_shared();
              shared.unlock_shared();
            }) < many_calls);
      shared.unlock_shared();
    });
  }

  TEST_CASE("calls that never wait keep the worker, however many they are") {
    in_virtual([] {
      const auto c = make_channel<int>(4);
      vigil::mutex m;
      vigil::shared_mutex s;
      vigil::semaphore permits(2);
      vigil::wait_group g;
      vigil::condition_variable v;
      vigil::rate_limiter limiter(vigil::rate::unlimited(), 1);
      vigil::single_flight<int, int> flights;
      const auto made = vigil::with_cancel(vigil::background());
      auto timer = vigil::after_func(1h, [] {});
      check_keeps("try_send and try_recv", [&] {
        static_cast<void>(c.try_send(1));
        static_cast<void>(c.try_recv());
      });
      check_keeps("try_lock and unlock", [&] {
        REQUIRE(m.try_lock());
        m.unlock();
        REQUIRE(s.try_lock());
        s.unlock();
        REQUIRE(s.try_lock_shared());
        s.unlock_shared();
      });
      check_keeps("try_acquire and release", [&] {
        REQUIRE(permits.try_acquire());
        permits.release();
      });
      check_keeps("rate_limiter::allow", [&] { REQUIRE(limiter.allow()); });
      check_keeps("rate_limiter::reserve and tokens", [&] {
        limiter.reserve().cancel();
        static_cast<void>(limiter.tokens());
      });
      check_keeps("single_flight::forget", [&] { flights.forget(1); });
      check_keeps("add and done", [&] {
        g.add();
        g.done();
      });
      check_keeps("notify", [&] {
        v.notify_one();
        v.notify_all();
      });
      check_keeps("close", [] { make_channel<int>().close(); });
      check_keeps("cancel", [&] { made.cancel(); });
      check_keeps("stop and reset", [&] {
        timer.stop();
        timer.reset(1h);
      });
      timer.stop();
      check_keeps("the end of a scoped_timer",
                  [] { const vigil::scoped_timer ends = vigil::after_func(1h, [] {}); });
      check_keeps("the end of boot's", [] {
        const vigil::boot::scoped_timer ends =
            vigil::boot::after_func_at(vigil::boot_clock::now() + 1h, [] {});
      });
      check_keeps("the end of wall's", [] {
        const vigil::wall::scoped_timer ends =
            vigil::wall::after_func_at(vigil::wall_clock::now() + 1h, [] {});
      });
      check_keeps("the end of a scoped_done_callback", [&] {
        const vigil::scoped_done_callback ends = vigil::after_func(vigil::background(), [] {});
      });
    });
  }

  TEST_CASE("the budget is that of one turn: a fiber that waits in between never gives way") {
    in_virtual([] {
      const auto c = make_channel<int>(1);
      bool had_turn = false;
      auto partner = spawn([&] {
        for (int i = 0; i < 20; ++i)
          vigil::this_fiber::yield();
        had_turn = true;
      });
      // 200 calls in each of ten turns, and the partner takes part in each.
      for (int turn = 0; turn < 10; ++turn) {
        for (int i = 0; i < 100; ++i) {
          c.send(1);
          c.recv();
        }
        CHECK_FALSE(had_turn);
        vigil::this_fiber::yield();
      }
      partner.join();
    });
  }

  TEST_CASE("options::turn_budget sets the number of calls, and 0 turns it off") {
    const auto with = [](std::uint32_t budget) {
      vigil::testing::virtual_options o;
      o.runtime.turn_budget = budget;
      int calls = 0;
      run_virtual(o, [&] { calls = calls_before_others([] { vigil::sleep_for(0s); }); });
      return calls;
    };
    CHECK(with(0) == many_calls);
    CHECK(with(1) <= 2);
    CHECK(with(1000) >= 1000);
    CHECK(with(1000) <= 2000);
    CHECK_THROWS_AS(with(1'000'001), std::invalid_argument);
  }
}

namespace {

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
