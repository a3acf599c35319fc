// Tasks when there is no stack for one more runner.
#include "core/task/task_test.hpp"

using namespace vigil::testing_support;

namespace {

// Room for the main fiber, the reserved runner of callbacks, the timer fiber, and some
// more.
vigil::testing::virtual_options room_for(std::size_t more) {
  vigil::testing::virtual_options how;
  how.runtime.max_stack_bytes = how.runtime.main_stack_size + (2 + more) * how.runtime.stack_size;
  return how;
}

task<> keeps_its_runner(std::chrono::seconds length) {
  vigil::sleep_for(length);
  co_return;
}

task<> sleeps_and_counts(std::chrono::seconds length, int& woken) {
  co_await co::sleep_for(length);
  ++woken;
}

task<> counts_its_stop(int& stopped) {
  try {
    co_await co::sleep_for(1h);
  } catch (const vigil::stopped&) {
    ++stopped;
    throw;
  }
}

}  // namespace

TEST_SUITE("task: stacks") {
  TEST_CASE("a ready task without a runner borrows the stack of a callback") {
    in_virtual(room_for(1), [] {
      int woken = 0;
      auto sleeper = spawn(sleeps_and_counts(2s, woken));
      auto keeper = spawn(keeps_its_runner(100s));  // the one runner
      vigil::sleep_for(3s);
      CHECK_THROWS_AS(vigil::go([] {}), vigil::limit_reached);
      CHECK(woken == 1);
      sleeper.join();
      keeper.request_stop();
    });
  }

  TEST_CASE("a ready task without a runner goes on when a fiber's stack comes free") {
    in_virtual(room_for(2), [] {
      int woken = 0;
      auto sleeper = spawn(sleeps_and_counts(2s, woken));
      vigil::sleep_for(1s);
      auto keeper = spawn(keeps_its_runner(100s));  // the one runner
      auto hog = spawn([] { vigil::sleep_for(10s); });
      vigil::post([] { vigil::sleep_for(20s); });
      vigil::sleep_for(5s);  // the sleeper has been ready for three seconds
      CHECK(woken == 0);
      CHECK_THROWS_AS(vigil::go([] {}), vigil::limit_reached);
      hog.join();
      vigil::sleep_for(1s);
      CHECK(woken == 1);
      sleeper.join();
      keeper.request_stop();
    });
  }

  TEST_CASE("tasks that die with handles of children do not starve them") {
    in_virtual(room_for(4), [] {
      int ended = 0;
      std::vector<task_handle<>> parents;
      for (int i = 0; i < 20; ++i) {
        parents.push_back(spawn([](int& n) -> task<> {
          const auto child = spawn(counts_its_stop(n));
          co_await co::sleep_for(1s);
        }(ended)));
      }
      for (auto& p : parents)
        p.join();
      CHECK(ended == 20);
    });
  }

  TEST_CASE("tasks that want stacks at the end of the run get theirs one after the other") {
    int ended = 0;
    in_virtual(room_for(3), [&] {
      for (int i = 0; i < 20; ++i) {
        vigil::go([](int& n) -> task<> {
          try {
            co_await co::sleep_for(1h);
          } catch (const vigil::stopped&) {
            const vigil::this_fiber::shield until_it_is_done;
            vigil::sleep_for(1s);
            ++n;
            throw;
          }
        }(ended));
      }
      vigil::sleep_for(1s);
    });
    CHECK(ended == 20);
  }

  TEST_CASE("parents and children that wake at once do not starve each other") {
    in_virtual(room_for(4), [] {
      int ended = 0;
      std::vector<task_handle<>> parents;
      const auto at = vigil::clock::now() + 3s;
      for (int i = 0; i < 20; ++i) {
        parents.push_back(spawn([](vigil::clock::time_point t, int& n) -> task<> {
          const auto child = spawn([](vigil::clock::time_point u, int& m) -> task<> {
            co_await co::sleep_until(u);
            ++m;
          }(t, n));
          co_await co::sleep_until(t);
        }(at, ended)));
      }
      for (auto& p : parents)
        p.join();
      CHECK(ended == 20);
    });
  }

  TEST_CASE("at the end of the run children go before the parents that own them") {
    int ended = 0;
    in_virtual(room_for(4), [&] {
      for (int i = 0; i < 20; ++i) {
        vigil::go([](int& n) -> task<> {
          co_await co::sleep_for(1s);
          const auto child = spawn(counts_its_stop(n));
          co_await co::sleep_for(1h);
        }(ended));
      }
      vigil::sleep_for(2s);
    });
    CHECK(ended == 20);
  }
}
