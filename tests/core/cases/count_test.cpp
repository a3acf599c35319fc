// The cases of semaphores, wait groups and latches.
#include "core/cases/cases_test.hpp"

using namespace vigil::testing_support;
using vigil::on_acquire;
using vigil::on_wait;

TEST_SUITE("count cases") {
  TEST_CASE("permits are taken as by acquire(), and stay with the caller or a scoped_permit") {
    in_virtual([] {
      vigil::semaphore s(3);
      CHECK(select(on_acquire(s)) == 0);
      CHECK(select(on_acquire(s, 2, [&] { CHECK(s.available() == 0); })) == 0);
      CHECK(s.available() == 0);
      CHECK(select(on_acquire(s), otherwise()) == 1);
      CHECK(select(on_acquire(s, 0)) == 0);
      go([&] {
        sleep_for(1s);
        s.release(3);
      });
      const auto start = vigil::clock::now();
      std::int64_t left = -1;
      CHECK(select(on_timeout(1h),
                   on_acquire(s, 2, [&](vigil::scoped_permit) { left = s.available(); })) == 1);
      CHECK(vigil::clock::now() - start == 1s);
      CHECK(left == 1);
      CHECK(s.available() == 3);
      CHECK_THROWS_AS(static_cast<void>(on_acquire(s, -1)), std::invalid_argument);
    });
  }

  TEST_CASE("a function that throws gives the permits back") {
    in_virtual([] {
      vigil::semaphore s(2);
      CHECK_THROWS_AS(select(on_acquire(s, 2, [] { throw 1; })), int);
      CHECK(s.available() == 2);
      CHECK_THROWS_AS(select(on_acquire(s, [](vigil::scoped_permit) { throw 1; })), int);
      CHECK(s.available() == 2);
    });
  }

  TEST_CASE("a big request that leaves lets the small ones behind it have their turn") {
    in_virtual([] {
      vigil::semaphore s(2);
      const auto c = make_channel<int>();
      auto big = spawn([&] { return select(on_acquire(s, 5), on_recv(c)); });
      settle();
      auto small = spawn([&] { return select(on_acquire(s, 1), on_timeout(1h)); });
      auto plain = spawn([&] { s.acquire(); });
      settle();
      CHECK(s.available() == 2);
      CHECK_FALSE(s.try_acquire());
      c.send(1);
      CHECK(big.join() == 1);
      CHECK(small.join() == 0);
      plain.join();
      CHECK(s.available() == 0);
      // The same for each way in which the big one may leave.
      auto timed = spawn([&] { return select(on_acquire(s, 5), on_timeout(1s)); });
      settle();
      auto behind = spawn([&] { return select(on_acquire(s, 1)); });
      settle();
      s.release(1);
      CHECK_FALSE(behind.join_for(0s));
      CHECK(timed.join() == 1);
      CHECK(behind.join() == 0);
      auto is_stopped = spawn([&] { select(on_acquire(s, 5)); });
      settle();
      auto last = spawn([&] { return select(on_acquire(s, 1)); });
      settle();
      s.release(1);
      is_stopped.request_stop();
      CHECK_THROWS_AS(is_stopped.join(), vigil::cancelled);
      CHECK(last.join() == 0);
      CHECK(s.available() == 0);
    });
  }

  TEST_CASE("a big request is not overtaken by selects") {
    in_virtual([] {
      vigil::semaphore s(0);
      auto big = spawn([&] { return select(on_acquire(s, 3), on_timeout(1h)); });
      settle();
      auto small = spawn([&] { return select(on_acquire(s, 1), on_timeout(1h)); });
      settle();
      s.release(2);
      settle();
      CHECK(s.available() == 2);
      CHECK(select(on_acquire(s, 1), otherwise()) == 1);
      s.release(1);
      CHECK(big.join() == 0);
      CHECK_FALSE(small.join_for(1s));
      s.release(1);
      CHECK(small.join() == 0);
      CHECK(s.available() == 0);
    });
  }

  TEST_CASE("a case for few permits does not wait behind one for many of its own select") {
    in_virtual([] {
      vigil::semaphore s(0);
      auto f = vigil::spawn([&] {
        return vigil::select_ordered(
            vigil::on_acquire(s, 2), vigil::on_acquire(s, 1), vigil::on_timeout(1h));
      });
      vigil::testing::settle();
      s.release(1);
      CHECK(f.join() == 1);
      CHECK(s.available() == 0);
    });
  }

  TEST_CASE("the same semaphore in two cases: one is taken, and no permit is lost") {
    in_virtual([] {
      vigil::semaphore s(0);
      auto f = spawn([&] { return select(on_acquire(s, 2), on_acquire(s, 1)); });
      settle();
      s.release(3);
      const std::size_t taken = f.join();
      CHECK(s.available() == (taken == 0 ? 1 : 2));
    });
  }

  TEST_CASE("a count is waited for until it is, or was, zero") {
    in_virtual([] {
      vigil::wait_group g;
      vigil::latch l(2);
      CHECK(select(on_wait(g)) == 0);
      CHECK(select(on_wait(l), otherwise()) == 1);
      g.add();
      auto waits = spawn([&] { return select(on_wait(g), on_timeout(1h)); });
      settle();
      g.done();
      g.add();
      CHECK(waits.join() == 0);
      CHECK(select(on_wait(g), on_timeout(1s)) == 1);
      go([&] {
        sleep_for(1s);
        l.count_down(2);
      });
      bool called = false;
      CHECK(select(on_wait(g), on_wait(l, [&] { called = true; })) == 1);
      CHECK(called);
      CHECK(select(on_wait(l), on_wait(l)) < 2);
      g.done();
      CHECK(g.try_wait());
    });
  }

  TEST_CASE("an object may be destroyed once its case was taken") {
    in_runtime({}, [](vigil::runtime& rt) {
      const auto outside = rt.make_work_guard();
      repeat(rounds(400), [](int) {
        const auto never = make_channel<int>();
        std::thread ends;
        {
          vigil::latch l(1);
          ends = std::thread([&] { l.count_down(); });
          CHECK(select(on_recv(never), on_wait(l)) == 1);
        }
        ends.join();
      });
    });
  }

  TEST_CASE("permits are neither lost nor made, whatever ends the selects") {
    for_each_seed(40, [] {
      constexpr std::int64_t all = 5;
      vigil::semaphore s(all);
      const auto c = make_channel<int>();
      crowd fibers;
      std::int64_t used = 0;
      for (std::uint64_t f = 0; f < 6; ++f) {
        fibers.add([&, f] {
          seeded dice(f + 1);
          for (int i = 0; i < 40; ++i) {
            const auto n = static_cast<std::int64_t>(dice.below(4));
            const auto use = [&](vigil::scoped_permit) {
              used += n;
              CHECK(used <= all);
              sleep_for(std::chrono::milliseconds(dice.below(3)));
              used -= n;
            };
            const auto limit = std::chrono::milliseconds(dice.below(4));
            switch (dice.below(3)) {
              case 0:
                select(on_acquire(s, n, use), on_timeout(limit));
                break;
              case 1:
                select(on_acquire(s, n, use), on_recv(c), on_timeout(limit));
                break;
              default:
                select(on_acquire(s, n, use), vigil::on_send(c, 1), on_timeout(limit));
            }
          }
        });
      }
      fibers.join();
      CHECK(used == 0);
      CHECK(s.available() == all);
      CHECK(s.try_acquire(all));
    });
  }
}
