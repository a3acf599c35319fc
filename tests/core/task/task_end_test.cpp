// Handles, detached tasks, and mistakes.
#include "core/task/task_test.hpp"

#include <thread>

using namespace vigil::testing_support;
using vigil::wrong_place;

namespace {

task<int> seven() {
  co_await co::sleep_for(1ms);
  co_return 7;
}

task<> fails() {
  co_await co::sleep_for(1ms);
  throw std::runtime_error("lost");
}

task<> counts_its_end(int& ended) {
  try {
    co_await co::sleep_for(24h);
  } catch (...) {
    ++ended;
    throw;
  }
}

}  // namespace

TEST_SUITE("task: handles") {
  TEST_CASE("a handle outlives its runtime, with the result") {
    task_handle<int> late;
    task_handle<int> dropped;
    in_virtual([&] {
      late = spawn(seven());
      dropped = spawn(seven());
      vigil::sleep_for(1s);
    });
    CHECK(late.join_for(0ms));
    CHECK(late.join() == 7);
    CHECK_THROWS_AS(late.join(), wrong_place);
  }

  TEST_CASE("an exception that nobody joins for goes to on_unhandled") {
    const auto check = [](auto starts) {
      in_virtual([&] {
        starts();
        vigil::sleep_for(1s);
        const std::exception_ptr error = kept_failure::take();
        REQUIRE(error != nullptr);
        CHECK_THROWS_WITH(std::rethrow_exception(error), "lost");
      });
    };
    check([] { vigil::go(fails()); });
    check([] { spawn(fails()).detach(); });
    check([] {
      auto t = spawn(fails());
      vigil::sleep_for(1s);  // its handle dies after the end
    });
    check([] {
      auto t = spawn(fails());
      vigil::sleep_for(1s);
      t.detach();
    });
  }

  TEST_CASE("empty tasks and handles are errors that say so") {
    in_virtual([] {
      task_handle<int> none;
      CHECK_FALSE(none.joinable());
      CHECK(none.id() == 0);
      none.request_stop();
      CHECK_THROWS_AS(none.join(), wrong_place);
      CHECK_THROWS_AS(none.detach(), wrong_place);
      task<int> t = seven();
      CHECK(spawn(std::move(t)).join() == 7);
      CHECK_THROWS_AS(static_cast<void>(spawn(std::move(t))), wrong_place);
      CHECK_THROWS_AS(spawn([]() -> task<> {
                        task<int> gone = seven();
                        co_await std::move(gone);
                        co_await std::move(gone);
                      }())
                          .join(),
                      wrong_place);
      CHECK_THROWS_AS(spawn([]() -> task<> {
                        task_handle<int> empty;
                        co_await co::join(empty);
                      }())
                          .join(),
                      wrong_place);
    });
  }

  TEST_CASE("two joiners at once: the second one is told") {
    in_virtual([] {
      auto t = spawn(seven());
      auto first =
          spawn([](task_handle<int>& of) -> task<int> { co_return co_await co::join(of); }(t));
      settle();
      CHECK_THROWS_AS(static_cast<void>(t.join_for(1h)), wrong_place);
      CHECK(first.join() == 7);
    });
  }

  TEST_CASE("outside a runtime a task cannot be started, and is not lost") {
    CHECK_THROWS_AS(static_cast<void>(spawn(seven())), wrong_place);
  }

  TEST_CASE("a plain thread joins a task, and hands it values") {
    in_runtime({.workers = {1, 2}}, [] {
      for (int i = 0; i < rounds(200); ++i) {
        auto ch = make_channel<int>();
        auto t = spawn([](vigil::channel<int> c) -> task<int> {
          co_return (co_await co::recv(c)).value_or(0);
        }(ch));
        int got = 0;
        std::thread outside([&] {
          ch.send(i);
          got = t.join();
        });
        vigil::blocking([&] { outside.join(); });
        CHECK(got == i);
      }
    });
  }

  TEST_CASE("a detached task's captures and result die with it") {
    in_virtual([] {
      auto alive = std::make_shared<int>(1);
      const auto holds = [](std::shared_ptr<int> p) -> task<std::shared_ptr<int>> {
        co_await co::sleep_for(1ms);
        co_return p;
      };
      vigil::go(holds(alive));
      spawn(holds(alive)).detach();
      CHECK(alive.use_count() == 3);
      vigil::sleep_for(1s);
      CHECK(alive.use_count() == 1);
    });
  }

  TEST_CASE("ten thousand sleeping tasks are stopped at the end of the run") {
    int ended = 0;
    in_virtual([&] {
      for (int i = 0; i < 10'000; ++i)
        vigil::go(counts_its_end(ended));
      settle();
    });
    CHECK(ended == 10'000);
  }

  TEST_CASE("a task that waits for its own end is refused") {
    in_virtual([] {
      const auto may_go = make_channel<int>();
      task_handle<> own;
      const auto joins = [&]() -> task<> {
        co_await co::recv(may_go);
        CHECK_THROWS_AS(static_cast<void>(co::join(own)), wrong_place);
        CHECK_THROWS_AS(static_cast<void>(co::join_for(own, 1ms)), wrong_place);
        CHECK_THROWS_AS(own.join(), wrong_place);
        CHECK_THROWS_AS(static_cast<void>(own.join_for(1ms)), wrong_place);
        CHECK_THROWS_AS(static_cast<void>(on_join(own)), wrong_place);
      };
      own = spawn(joins());
      may_go.send(1);
      own.join();
    });
  }
}
