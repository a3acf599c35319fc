// The budget of calls that are served at once: which calls give the worker away.
// src/core/sched/worker/turn_budget.hpp
#include "core/runtime/turn_helpers.hpp"

#include <vigil/clocks.hpp>
#include <vigil/rate_limiter.hpp>
#include <vigil/single_flight.hpp>

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

template <class F>
void check_keeps(const char* what, F call) {
  CHECK_MESSAGE(calls_before_others(call) == many_calls, what, " gives its worker away");
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
