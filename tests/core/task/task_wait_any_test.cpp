// wait_any and wait_all over tasks: on fibers, and with co_await in tasks.
#include "core/task/task_test.hpp"

#include <atomic>
#include <thread>

using namespace vigil::testing_support;

namespace {

task<int> result_after(std::chrono::milliseconds time, int result) {
  co_await co::sleep_for(time);
  co_return result;
}

task<int> fails_at_once() {
  throw std::runtime_error("x");
  co_return 0;
}

vigil::fiber<int> fiber_that_ends_after(std::chrono::milliseconds time, int result) {
  return spawn([time, result] {
    vigil::sleep_for(time);
    return result;
  });
}

std::vector<task_handle<int>> tasks_that_end_backwards(int count) {
  std::vector<task_handle<int>> all;
  for (int i = 0; i < count; ++i)
    all.push_back(spawn(result_after((count - i) * 1s, i)));
  return all;
}

// Runs f(), which makes a task, and joins it.
template <class F>
void in_a_task(F f) {
  in_virtual([&f] { spawn(f()).join(); });
}

}  // namespace

TEST_SUITE("task: wait_any, wait_all") {
  TEST_CASE("on a fiber wait_any tells which task has ended, until each was joined") {
    in_virtual([] {
      std::vector<task_handle<int>> all = tasks_that_end_backwards(100);
      for (int i = 99; i >= 0; --i) {
        const std::size_t ended = vigil::wait_any(all);
        CHECK(ended == static_cast<std::size_t>(i));
        CHECK(all[ended].join() == i);
      }
      CHECK_THROWS_AS(vigil::wait_any(all), std::invalid_argument);
      vigil::wait_all(all);
    });
  }

  TEST_CASE("in a task wait_any tells which task has ended, until each was joined") {
    in_a_task([]() -> task<> {
      std::vector<task_handle<int>> all = tasks_that_end_backwards(100);
      for (int i = 99; i >= 0; --i) {
        const std::size_t ended = co_await co::wait_any(all);
        CHECK(ended == static_cast<std::size_t>(i));
        CHECK(co_await co::join(all[ended]) == i);
      }
      bool is_refused = false;
      try {
        co_await co::wait_any(all);
      } catch (const std::invalid_argument&) {
        is_refused = true;
      }
      CHECK(is_refused);
      co_await co::wait_all(all);
    });
  }

  TEST_CASE("handles of fibers and tasks, and ranges of them, are counted through") {
    const auto waits = [](auto& a, auto& b, auto& more) -> task<> {
      CHECK(vigil::wait_any(a, b, more) == 1);
      CHECK(co_await co::wait_any(a, b, more) == 1);
      b.join();
      CHECK(co_await co::wait_any(a, b, more) == 2);
      CHECK(vigil::wait_any_for(0s, a, more) == 1u);
      CHECK(co_await co::wait_any_for(0s, a, more) == 1u);
      co_await co::wait_all(a, b, more);
      vigil::wait_all(a, b, more);
      CHECK(more[0].join() == 2);
      CHECK(a.join() == 1);
    };
    in_a_task([&waits]() -> task<> {
      auto a = spawn(result_after(3s, 1));
      auto b = fiber_that_ends_after(1s, 3);
      std::vector<vigil::fiber<int>> more;
      more.push_back(fiber_that_ends_after(2s, 2));
      co_await waits(a, b, more);
    });
    in_a_task([&waits]() -> task<> {
      auto a = fiber_that_ends_after(3s, 1);
      auto b = spawn(result_after(1s, 3));
      std::vector<task_handle<int>> more;
      more.push_back(spawn(result_after(2s, 2)));
      co_await waits(a, b, more);
    });
  }

  TEST_CASE("a limit ends the wait, and the tasks go on") {
    in_a_task([]() -> task<> {
      std::vector<task_handle<int>> all = tasks_that_end_backwards(2);
      const auto began = vigil::clock::now();
      const auto passed = [began] { return vigil::clock::now() - began; };
      CHECK(co_await co::wait_any_for(100ms, all) == std::nullopt);
      CHECK(passed() == 100ms);
      CHECK(co_await co::wait_any_for(-1s, all) == std::nullopt);
      CHECK_FALSE(co_await co::wait_all_for(1400ms, all));
      CHECK(passed() == 1500ms);
      CHECK_FALSE(co_await co::wait_all_for(0s, all));
      CHECK_FALSE(vigil::wait_all_for(0s, all));
      CHECK(co_await co::wait_any_for(0s, all) == 1u);
      CHECK(co_await co::wait_all_for(1h, all));
      CHECK(passed() == 2s);
      CHECK(all[0].join() + all[1].join() == 1);
    });
  }

  TEST_CASE("a context ends the wait, before it begins and later") {
    in_a_task([]() -> task<> {
      std::vector<task_handle<int>> all = tasks_that_end_backwards(2);
      const auto began = vigil::clock::now();
      const auto soon = vigil::with_timeout(vigil::background(), 100ms);
      const auto is_cancelled = [](auto wait) -> task<bool> {
        try {
          co_await wait();
        } catch (const vigil::cancelled&) {
          co_return true;
        }
        co_return false;
      };
      const auto any = [&]() -> task<> { co_await co::wait_any(soon.ctx, all); };
      const auto each = [&]() -> task<> { co_await co::wait_all(soon.ctx, all); };
      CHECK(co_await is_cancelled(any));
      CHECK(vigil::clock::now() - began == 100ms);
      CHECK(co_await is_cancelled(any));
      CHECK(co_await is_cancelled(each));
      const auto later = vigil::with_timeout(vigil::background(), 100ms);
      CHECK(co_await is_cancelled([&]() -> task<> { co_await co::wait_all(later.ctx, all); }));
      CHECK(vigil::clock::now() - began == 200ms);
      const auto never = vigil::with_cancel(vigil::background());
      CHECK(co_await co::wait_any(never.ctx, all) == 1);
      co_await co::wait_all(never.ctx, all);
      CHECK(vigil::clock::now() - began == 2s);
    });
  }

  TEST_CASE("a stop ends the wait, and the handles stay") {
    in_virtual([] {
      std::vector<task_handle<int>> all = tasks_that_end_backwards(2);
      const auto any = [&all]() -> task<> { co_await co::wait_any(all); };
      const auto each = [&all]() -> task<> { co_await co::wait_all(all); };
      auto first = spawn(any());
      settle();
      first.request_stop();
      CHECK_THROWS_AS(first.join(), vigil::cancelled);
      auto second = spawn(each());
      settle();
      second.request_stop();
      CHECK_THROWS_AS(second.join(), vigil::cancelled);
      CHECK(vigil::wait_any(all) == 1);
      CHECK(all[1].join() + all[0].join() == 1);
    });
  }

  TEST_CASE("a task that has failed has ended: join() says how") {
    in_a_task([]() -> task<> {
      auto good = spawn(result_after(1s, 1));
      auto bad = spawn(fails_at_once());
      CHECK(co_await co::wait_any(good, bad) == 1);
      co_await co::wait_all(good, bad);
      CHECK_THROWS_AS(bad.join(), std::runtime_error);
      CHECK(good.join() == 1);
    });
  }

  TEST_CASE("the caller's own task and one that is being joined are refused") {
    in_virtual([] {
      task_handle<> own;
      const auto waits_for_itself = [&own]() -> task<> {
        const auto began = vigil::clock::now();
        auto slow = spawn(result_after(100s, 1));
        CHECK_THROWS_AS(vigil::wait_any(own), vigil::wrong_place);
        CHECK_THROWS_AS(vigil::wait_any(slow, own), vigil::wrong_place);
        CHECK_THROWS_AS(vigil::wait_all(slow, own), vigil::wrong_place);
        CHECK_THROWS_AS(static_cast<void>(vigil::wait_all_for(1s, slow, own)), vigil::wrong_place);
        const auto is_refused = [](auto wait) -> task<bool> {
          try {
            static_cast<void>(co_await wait());
          } catch (const vigil::wrong_place&) {
            co_return true;
          }
          co_return false;
        };
        CHECK(co_await is_refused([&] { return co::wait_any(own); }));
        CHECK(co_await is_refused([&] { return co::wait_any(slow, own); }));
        CHECK(co_await is_refused([&] { return co::wait_any(slow, slow); }));
        CHECK(co_await is_refused([&] { return co::wait_all_for(1s, slow, own); }));
        CHECK(vigil::clock::now() == began);
        CHECK(slow.join() == 1);
      };
      own = spawn(waits_for_itself());
      own.join();
      std::vector<task_handle<int>> all = tasks_that_end_backwards(2);
      auto joins = spawn([&all] { return all[1].join(); });
      settle();
      CHECK_THROWS_AS(vigil::wait_any(all), vigil::wrong_place);
      CHECK_THROWS_AS(vigil::wait_any(all[0], all[0]), vigil::wrong_place);
      CHECK_THROWS_AS(vigil::wait_all(all[1], all[0]), vigil::wrong_place);
      CHECK(joins.join() == 1);
      CHECK(vigil::wait_any(all) == 0);
      CHECK(all[0].join() == 0);
    });
  }

  TEST_CASE("a wait that was made before looks at the handles when it is awaited") {
    in_a_task([]() -> task<> {
      std::vector<task_handle<int>> all = tasks_that_end_backwards(3);
      auto f = fiber_that_ends_after(10s, 4);
      auto any = co::wait_any(f, all);
      auto each = co::wait_all(f, all);
      auto one = co::join(all[0]);
      CHECK(co_await co::join(all[2]) == 2);
      CHECK(co_await std::move(any) == 2);
      CHECK(all[0].join() == 0);
      CHECK(f.join() == 4);
      co_await std::move(each);
      bool is_empty = false;
      try {
        static_cast<void>(co_await std::move(one));
      } catch (const vigil::wrong_place&) {
        is_empty = true;
      }
      CHECK(is_empty);
      CHECK(all[1].join() == 1);
    });
  }

  TEST_CASE("a wait keeps its context, whose other handles may have gone") {
    in_a_task([]() -> task<> {
      std::vector<task_handle<int>> all = tasks_that_end_backwards(2);
      const auto began = vigil::clock::now();
      const auto any = [&all] {
        return co::wait_any(vigil::with_timeout(vigil::background(), 100ms).ctx, all);
      };
      const auto each = [&all] {
        return co::wait_all(vigil::with_timeout(vigil::background(), 100ms).ctx, all);
      };
      const auto is_cancelled = [](auto wait) -> task<bool> {
        auto made = wait();
        try {
          static_cast<void>(co_await std::move(made));
        } catch (const vigil::cancelled&) {
          co_return true;
        }
        co_return false;
      };
      CHECK(co_await is_cancelled(any));
      CHECK(co_await is_cancelled([&each] { return each(); }));
      CHECK(vigil::clock::now() - began <= 200ms);
      vigil::wait_all(all);
    });
  }

  TEST_CASE("empty handles keep their index") {
    in_a_task([]() -> task<> {
      task_handle<int> none;
      vigil::fiber<int> no_fiber;
      std::vector<task_handle<int>> some(2);
      some.push_back(spawn(result_after(1s, 1)));
      CHECK(vigil::wait_any(none, no_fiber, some) == 4);
      CHECK(co_await co::wait_any(none, no_fiber, some) == 4);
      co_await co::wait_all(none, no_fiber, some);
      CHECK(some[2].join() == 1);
    });
  }

  TEST_CASE("an array is a range of handles") {
    in_virtual([] {
      task_handle<int> tasks[] = {spawn(result_after(2s, 1)), spawn(result_after(1s, 2))};
      CHECK(vigil::wait_any(tasks) == 1);
      vigil::wait_all(tasks);
      CHECK(tasks[0].join() + tasks[1].join() == 3);
    });
  }

  // The sanitizers see whether it touches the runtime, which is freed at that moment.
  TEST_CASE("a thread asks for the end of a task whose runtime ends") {
    for (int i = 0; i < rounds(200); ++i) {
      task_handle<int> h;
      std::atomic<bool> is_started{false};
      std::thread asks([&h, &is_started, i] {
        is_started.wait(false);
        if (i % 2 == 0) {
          while (!vigil::wait_any_for(0s, h)) {
          }
        } else {
          while (!h.join_for(0s)) {
          }
        }
      });
      {
        vigil::runtime rt({.workers = 1});
        rt.run([&] {
          h = spawn(result_after(1ms, i));
          is_started.store(true);
          is_started.notify_one();
          vigil::sleep_for(1ms);
        });
      }
      asks.join();
      vigil::wait_all(h);
    }
  }

  TEST_CASE("every task is found once, on threads, fibers and tasks") {
    in_runtime({}, [](vigil::runtime& rt) {
      const auto outside = rt.make_work_guard();
      const auto yields = [](int i) -> task<int> {
        if (i % 2 == 0) co_await co::yield();
        co_return i;
      };
      const auto fifty = [&yields] {
        std::vector<task_handle<int>> all;
        for (int i = 0; i < 50; ++i)
          all.push_back(spawn(yields(i)));
        return all;
      };
      const auto sum_of = [](std::vector<task_handle<int>> all) {
        int sum = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
          sum += all[vigil::wait_any(all)].join();
        return sum;
      };
      const auto sum_in_task = [](std::vector<task_handle<int>> all) -> task<int> {
        int sum = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
          sum += co_await co::join(all[co_await co::wait_any(all)]);
        co_return sum;
      };
      std::atomic<int> there{-1};
      std::thread plain([&, all = fifty()]() mutable { there = sum_of(std::move(all)); });
      auto in_a_task = spawn(sum_in_task(fifty()));
      CHECK(sum_of(fifty()) == 1225);
      CHECK(in_a_task.join() == 1225);
      while (there < 0)
        vigil::this_fiber::yield();
      plain.join();
      CHECK(there == 1225);
    });
  }
}
