// The case of a fiber's end.
#include "core/cases/cases_test.hpp"

#include <vigil/co.hpp>

using namespace vigil::testing_support;
using vigil::on_join;

namespace {

// Holds the one permit until its last owner lets go.
std::shared_ptr<vigil::semaphore> permit_of(vigil::semaphore& sem) {
  sem.acquire();
  return {&sem, [](vigil::semaphore* s) { s->release(); }};
}

}  // namespace

TEST_SUITE("join case") {
  TEST_CASE("a value that the function does not take is gone before the call") {
    in_virtual([] {
      vigil::semaphore sem(1);
      int calls = 0;
      // Waits for ever if the permit is still there.
      const auto needs_permit = [&] {
        sem.acquire();
        sem.release();
        ++calls;
      };
      const auto back = make_channel<std::shared_ptr<vigil::semaphore>>(1);
      back.send(permit_of(sem));
      select(on_recv(back, needs_permit));
      auto f = spawn([&] { return permit_of(sem); });
      select(on_join(f, needs_permit));
      auto t = spawn([](vigil::semaphore& s) -> vigil::task<std::shared_ptr<vigil::semaphore>> {
        co_return permit_of(s);
      }(sem));
      select(on_join(t, needs_permit));
      vigil::group_of<std::shared_ptr<vigil::semaphore>> g;
      g.go([&] { return permit_of(sem); });
      select(vigil::on_next(g, needs_permit));
      g.wait();
      CHECK(calls == 4);
    });
  }

  TEST_CASE("takes the result, as join() does, of a fiber that has ended or ends") {
    in_virtual([] {
      auto f = spawn([] { return 3; });
      settle();
      int got = 0;
      CHECK(select(on_join(f, [&](int r) { got = r; }), otherwise()) == 0);
      CHECK(got == 3);
      CHECK_FALSE(f.joinable());
      f = ends_after(2s, 4);
      CHECK(select(on_join(f), otherwise()) == 1);
      const auto start = vigil::clock::now();
      CHECK(select(on_timeout(1h), on_join(f, [&](int r) { got = r; })) == 1);
      CHECK(got == 4);
      CHECK(vigil::clock::now() - start == 2s);
      bool ended = false;
      auto v = spawn([] {});
      CHECK(select(on_join(v, [&] { ended = true; })) == 0);
      CHECK(ended);
      auto moves = spawn([] { return std::make_unique<int>(5); });
      select(on_join(moves, [&](std::unique_ptr<int> p) { got = *p; }));
      CHECK(got == 5);
      auto dropped = spawn([] { return std::string(100, 'x'); });
      CHECK(select(on_join(dropped)) == 0);
    });
  }

  TEST_CASE("the first of several fibers to end is taken, the others stay joinable") {
    in_virtual([] {
      auto slow = ends_after(3s, 1);
      auto fast = ends_after(1s, 2);
      const auto c = make_channel<int>();
      CHECK(select(on_join(slow), on_join(fast), on_recv(c)) == 1);
      CHECK(slow.joinable());
      CHECK(select(on_join(slow), on_timeout(1s)) == 1);
      CHECK(slow.joinable());
      CHECK_FALSE(slow.join_for(0s));
      CHECK(slow.join() == 1);
    });
  }

  TEST_CASE("what ended the fiber comes out of select(), and the handle is empty") {
    in_virtual([] {
      auto fails = spawn([]() -> int { throw std::runtime_error("x"); });
      CHECK_THROWS_AS(select(on_join(fails), on_timeout(1s)), std::runtime_error);
      CHECK_FALSE(fails.joinable());
      auto is_stopped = spawn([] { sleep_for(1h); });
      is_stopped.request_stop();
      CHECK_THROWS_AS(select(on_join(is_stopped)), vigil::cancelled);
      CHECK_FALSE(is_stopped.joinable());
      auto f = spawn([] { return 1; });
      CHECK_THROWS_AS(select(on_join(f, [](int) { throw 5; })), int);
      CHECK_FALSE(f.joinable());
    });
  }

  TEST_CASE("refuses an empty handle, the caller's own, and one that is being joined") {
    in_virtual([] {
      vigil::fiber<int> empty;
      CHECK_THROWS_AS(static_cast<void>(on_join(empty)), vigil::wrong_place);
      vigil::fiber<> own;
      own = spawn([&] { CHECK_THROWS_AS(select(on_join(own)), vigil::wrong_place); });
      own.join();
      auto f = ends_after(1s, 1);
      const auto c = make_channel<int>(1);
      auto joins = spawn([&] { return f.join(); });
      settle();
      CHECK_THROWS_AS(select(on_recv(c), on_join(f)), vigil::wrong_place);
      CHECK(joins.join() == 1);
      c.send(1);
      CHECK(c.recv() == 1);  // nothing of the select is left in its queue
      auto g = ends_after(1s, 1);
      CHECK_THROWS_AS(select(on_join(g), on_join(g)), vigil::wrong_place);
      CHECK(g.join() == 1);
      auto h = ends_after(1s, 1);
      auto selects = spawn([&] { return select(on_join(h)); });
      settle();
      CHECK_THROWS_AS(h.join(), vigil::wrong_place);
      CHECK(selects.join() == 0);
    });
  }

  TEST_CASE("a stop, a cancel and the end of a run leave the handle joinable") {
    in_virtual([] {
      auto f = ends_after(1h, 1);
      auto waits = spawn([&] { select(on_join(f)); });
      settle();
      waits.request_stop();
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      CHECK(f.joinable());
      CHECK(select(on_join(f), on_timeout(1s)) == 1);
      CHECK(f.join() == 1);
    });
    in_virtual([] {
      go([] {
        auto f = spawn([] { sleep_for(1h); });
        select(on_join(f));
      });
      settle();
    });
  }

  TEST_CASE("a list of cases joins one fiber after another") {
    in_virtual([] {
      std::vector<vigil::fiber<int>> fibers;
      for (int i = 0; i < 5; ++i)
        fibers.push_back(ends_after((5 - i) * 1s, i));
      vigil::case_list list;
      std::vector<int> order;
      for (auto& f : fibers)
        list.add(on_join(f, [&](int r) { order.push_back(r); }));
      for (int i = 0; i < 5; ++i)
        select(list);
      CHECK(order == std::vector<int>{4, 3, 2, 1, 0});
      list.add(on_timeout(1s));
      CHECK(select(list) == 5);  // the others are empty
      fibers[2] = ends_after(1ms, 7);
      CHECK(select(list) == 2);
      CHECK(order.back() == 7);
      fibers[2] = ends_after(1ms, 8);
      list.switch_off(2);
      CHECK(select(list) == 5);
      CHECK(fibers[2].join() == 8);
    });
  }

  TEST_CASE("a function on a side pool is selected on through a fiber") {
    in_runtime({}, [] {
      auto call = spawn([] { return vigil::blocking([] { return 6; }); });
      int got = 0;
      select(on_join(call, [&](int r) { got = r; }));
      CHECK(got == 6);
    });
  }

  TEST_CASE("threads join fibers by select while they end") {
    in_runtime({}, [] {
      repeat(rounds(40), [](int i) {
        const auto c = make_channel<int>(1);
        std::optional<int> joined;
        std::atomic<bool> done{false};
        vigil::fiber<int> f = spawn([i] { return i; });
        std::thread plain([&] {
          if (select(on_join(f, [&](int r) { joined = r; }), on_recv(c)) == 1) joined = f.join();
          done = true;
        });
        if (i % 2 == 0) c.send(1);
        while (!done)
          vigil::this_fiber::yield();
        plain.join();
        CHECK(joined == i);
      });
    });
  }
}
