// after_func of a context: once, on a fiber of its own.
#include "cancel/context_helpers.hpp"

#include <atomic>
#include <memory>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::after_func;
using vigil::background;
using vigil::context;
using vigil::sleep_for;
using vigil::with_cancel;
using vigil::with_timeout;
using vigil::without_cancel;
using vigil::testing::settle;
using clock = vigil::clock;

}  // namespace

TEST_SUITE("after_func of a context") {
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

  TEST_CASE("runs at the deadline") {
    in_virtual([] {
      const auto start = clock::now();
      clock::time_point ran;
      {
        // Pending, it keeps the context.
        static_cast<void>(
            after_func(with_timeout(background(), 1s).ctx, [&] { ran = clock::now(); }));
      }
      sleep_for(2s);
      CHECK(ran == start + 1s);
    });
  }

  TEST_CASE("runs at once for a context that is done") {
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

  TEST_CASE("of a context that is never done stop is true once, and dropping it drops f") {
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

  TEST_CASE("after its runtime has gone the function goes without having run") {
    bool ran = false;
    auto shared = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = shared;
    auto it = with_cancel(background());  // of this thread
    in_virtual([&] {
      static_cast<void>(after_func(it.ctx, [&ran, p = std::move(shared)] { ran = true; }));
    });
    it.cancel();
    CHECK_FALSE(ran);
    CHECK(watch.expired());
  }
}
