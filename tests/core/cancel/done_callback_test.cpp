// after_func of a context: it runs once, on a fiber of its own.
#include "core/cancel/cancel_test.hpp"

#include <vigil/stop_token.hpp>

#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

namespace {

using namespace vigil::testing_support;
using vigil::after_func;

}  // namespace

TEST_SUITE("after_func of a context") {
  // Go: TestAfterFuncCalledAfterCancel, -CalledAsynchronously.
  TEST_CASE("runs once on a fiber of its own after the cancel, which does not wait for it") {
    in_virtual([] {
      auto it = with_cancel(background());
      int runs = 0;
      const auto self = vigil::this_fiber::id();
      const auto f = after_func(it.ctx, [&] {
        CHECK(it.ctx.is_done());
        CHECK(vigil::this_fiber::id() != self);
        sleep_for(1s);
        ++runs;
      });
      sleep_for(1s);
      CHECK(runs == 0);
      const auto start = clock::now();
      it.cancel();
      CHECK(runs == 0);
      CHECK(since(start) == 0s);
      CHECK_FALSE(f.stop());
      sleep_for(2s);
      CHECK(runs == 1);
      it.cancel();
      sleep_for(2s);
      CHECK(runs == 1);
    });
  }

  // Go: TestAfterFuncCalledAfterTimeout.
  TEST_CASE("runs at the deadline") {
    in_virtual([] {
      const auto start = clock::now();
      clock::time_point ran;
      {
        // While pending it keeps the context.
        static_cast<void>(
            after_func(with_timeout(background(), 1s).ctx, [&] { ran = clock::now(); }));
      }
      sleep_for(2s);
      CHECK(ran == start + 1s);
    });
  }

  // Go: TestAfterFuncCalledImmediately.
  TEST_CASE("runs at once for a done context") {
    in_virtual([] {
      auto it = with_cancel(background());
      it.cancel();
      bool ran = false;
      const auto f = after_func(it.ctx, [&] { ran = true; });
      CHECK_FALSE(f.stop());
      settle();
      CHECK(ran);
    });
  }

  // Go: TestChildFinishesFirst, TestCancelRemoves;
  // TestAfterFuncNotCalledAfterStop.
  TEST_CASE("stop is true exactly once if it prevented the run, and drops the captures") {
    in_virtual([] {
      auto it = with_cancel(background());
      auto shared = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = shared;
      bool ran = false;
      const auto f = after_func(it.ctx, [&ran, p = std::move(shared)] { ran = true; });
      const auto copy = f;
      CHECK_FALSE(watch.expired());
      CHECK(copy.stop());
      CHECK(watch.expired());
      CHECK_FALSE(f.stop());
      it.cancel();
      sleep_for(1s);
      CHECK_FALSE(ran);
      CHECK_FALSE(vigil::done_callback().stop());
    });
  }

  TEST_CASE("of a context that is never done: stop is true once, and dropping it drops f") {
    in_virtual([] {
      auto shared = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = shared;
      {
        const auto f = after_func(without_cancel(background()), [p = shared] {});
        const auto g = after_func(without_cancel(background()), [p = std::move(shared)] {});
        CHECK(f.stop());
        CHECK_FALSE(f.stop());
        CHECK_FALSE(watch.expired());
      }
      CHECK(watch.expired());
    });
  }

  // Go: TestAfterFuncNotCalledAfterStop.
  TEST_CASE("stop and cancel at once: it runs, or stop says that it prevented it") {
    in_runtime({{2}, {}}, [] {
      for (int round = 0; round < rounds(2000); ++round) {
        auto it = with_cancel(background());
        std::atomic<int> ran{0};
        auto came = vigil::make_channel<void>(1);
        const auto f = after_func(it.ctx, [&ran, came] {
          ++ran;
          came.send();
        });
        auto other = vigil::spawn([&] { it.cancel(); });
        const bool prevented = f.stop();
        other.join();
        if (!prevented) came.recv();
        CHECK(ran.load() == (prevented ? 0 : 1));
      }
    });
  }

  TEST_CASE("a plain thread may cancel, and it runs in the runtime where it was made") {
    in_runtime({{1, 2}, {}}, [](vigil::runtime& rt) {
      const auto guard = rt.make_work_guard();
      auto it = with_cancel(background());
      auto came = vigil::make_channel<std::uint64_t>(1);
      static_cast<void>(after_func(it.ctx, [came] { came.send(vigil::this_fiber::id()); }));
      std::thread([cancel = it.cancel] { cancel(); }).join();
      CHECK(*came.recv() != 0);
    });
  }

  TEST_CASE("after its runtime has gone the function is destroyed without having run") {
    bool ran = false;
    auto shared = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = shared;
    auto it = with_cancel(background());  // belongs to this thread
    in_virtual([&] {
      static_cast<void>(after_func(it.ctx, [&ran, p = std::move(shared)] { ran = true; }));
    });
    it.cancel();
    CHECK_FALSE(ran);
    CHECK(watch.expired());
  }
}

TEST_SUITE("after_func of a context: stop_and_wait") {
  // Go: stop does not say whether f has finished, nor waits.
  TEST_CASE("waits for the f that is running and is false, for each caller") {
    in_virtual([] {
      auto it = with_cancel(background());
      const auto start = clock::now();
      const auto f = after_func(it.ctx, [] { sleep_for(4s); });
      it.cancel();
      sleep_for(1s);
      auto other = vigil::spawn([f, start] {
        CHECK_FALSE(f.stop_and_wait());
        CHECK(since(start) == 4s);
      });
      CHECK_FALSE(f.stop());
      CHECK_FALSE(f.stop_and_wait());
      CHECK(since(start) == 4s);
      other.join();
      CHECK_FALSE(f.stop_and_wait());
    });
  }

  TEST_CASE("is true at once, and once, for an f that has not begun, and drops it") {
    in_virtual([] {
      bool ran = false;
      for (const bool is_due : {false, true}) {
        auto it = with_cancel(background());
        auto shared = std::make_shared<int>(1);
        const std::weak_ptr<int> watch = shared;
        const auto f = after_func(it.ctx, [&ran, p = std::move(shared)] { ran = true; });
        if (is_due) it.cancel();
        CHECK(f.stop_and_wait());
        CHECK(watch.expired());
        CHECK_FALSE(f.stop_and_wait());
        CHECK_FALSE(f.stop());
        it.cancel();
      }
      const auto never = after_func(without_cancel(background()), [] {});
      CHECK(never.stop_and_wait());
      CHECK_FALSE(never.stop_and_wait());
      const auto stopped = after_func(with_cancel(background()).ctx, [] {});
      CHECK(stopped.stop());
      CHECK_FALSE(stopped.stop_and_wait());
      CHECK_FALSE(vigil::done_callback().stop_and_wait());
      sleep_for(1s);
      CHECK_FALSE(ran);
    });
  }

  // Go: stop does not say whether f has finished, nor waits.
  TEST_CASE("inside f itself is an error that names the call to use") {
    in_virtual([] {
      auto it = with_cancel(background());
      std::string text;
      vigil::done_callback f;
      f = after_func(it.ctx, [&] {
        try {
          f.stop_and_wait();
        } catch (const vigil::wrong_place& e) {
          text = e.what();
        }
      });
      it.cancel();
      settle();
      CHECK(text.find("done_callback::stop_and_wait") != std::string::npos);
      CHECK(text.find("use stop()") != std::string::npos);
    });
  }

  // Go: stop does not say whether f has finished, nor waits.
  TEST_CASE("ends early by a stop of the waiting fiber, and when its context is done") {
    in_virtual([] {
      auto it = with_cancel(background());
      const auto start = clock::now();
      const auto f = after_func(it.ctx, [] { sleep_for(10s); });
      it.cancel();
      sleep_for(1s);
      const auto bound = with_timeout(background(), 1s);
      CHECK_THROWS_AS(static_cast<void>(f.stop_and_wait(bound.ctx)), vigil::cancelled);
      CHECK(since(start) == 2s);
      auto other = vigil::spawn([&] { f.stop_and_wait(); });
      settle();
      other.request_stop();
      CHECK_THROWS_AS(other.join(), vigil::cancelled);
      CHECK(since(start) == 2s);
      CHECK_FALSE(f.stop_and_wait(background()));
      CHECK(since(start) == 10s);
      // A call that need not wait does not, whatever the context.
      CHECK_FALSE(f.stop_and_wait(bound.ctx));
      CHECK(after_func(background(), [] {}).stop_and_wait(bound.ctx));
      CHECK_THROWS_AS(static_cast<void>(f.stop_and_wait(context())), std::invalid_argument);
    });
  }

  // Go: stop does not say whether f has finished, nor waits.
  TEST_CASE("called by the canceller, before the cancel has reached f: it never runs") {
    in_virtual([] {
      auto it = with_cancel(background());
      vigil::done_callback second;
      int prevented = 0;
      bool ran = false;
      // The cancel comes to the token's callbacks before it comes to f.
      const std::stop_token token = vigil::stop_token_of(it.ctx);
      const std::stop_callback stops_second(token,
                                            [&] { prevented += second.stop_and_wait() ? 1 : 0; });
      second = after_func(it.ctx, [&] { ran = true; });
      it.cancel();
      CHECK(prevented == 1);
      CHECK_FALSE(second.stop_and_wait());
      settle();
      CHECK_FALSE(ran);
    });
  }

  // Go: stop does not say whether f has finished, nor waits.
  TEST_CASE("beside a cancel: when it returns f does not run and will not") {
    in_runtime({{2}, {}}, [](vigil::runtime& rt) {
      const auto guard = rt.make_work_guard();
      for (int round = 0; round < rounds(2000); ++round) {
        auto it = with_cancel(background());
        // Written without atomics: ThreadSanitizer judges the wait.
        auto runs = std::make_unique<int>(0);
        int* const count = runs.get();
        const auto f = after_func(it.ctx, [count] {
          vigil::this_fiber::yield();
          ++*count;
        });
        std::thread thread;
        vigil::fiber<> fiber;
        if (round % 4 == 0) {
          thread = std::thread([cancel = it.cancel] { cancel(); });
        } else {
          fiber = vigil::spawn([cancel = it.cancel] { cancel(); });
        }
        const bool prevented = f.stop_and_wait();
        CHECK(*count == (prevented ? 0 : 1));
        runs.reset();
        if (thread.joinable()) thread.join();
        if (fiber.joinable()) fiber.join();
      }
    });
  }

  TEST_CASE("after its runtime has gone is false, from a plain thread") {
    auto it = with_cancel(background());  // belongs to this thread
    vigil::done_callback f;
    in_virtual([&] { f = after_func(it.ctx, [] {}); });
    it.cancel();
    CHECK_FALSE(f.stop_and_wait());
  }
}
