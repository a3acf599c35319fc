// A context: how it is made, and how it ends, by Go's rules.
#include "core/cancel/cancel_test.hpp"

#include <vigil/stop_token.hpp>

#include <array>
#include <string>

#include <time.h>

namespace {

using namespace vigil::testing_support;
using vigil::after_func;
using vigil::cancellable;
using vigil::context_key;
using vigil::stats;
using vigil::with_value;

// The processor time that this thread has used.
long long processor_nanos() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

const context_key<std::string> name_key;
const context_key<std::string> other_key;
const context_key<int> int_key;

}  // namespace

TEST_SUITE("context") {
  // Go: TestBackground, TestTODO.
  TEST_CASE("the background of a fiber is open, the same for all, and has no deadline") {
    in_virtual([] {
      const context ctx = background();
      CHECK(is_open(ctx));
      CHECK(ctx.deadline() == clock::time_point::max());
      CHECK(ctx == background());
      CHECK(vigil::spawn([] { return background(); }).join() == ctx);
    });
  }

  // Go: TestBackground, TestTODO.
  TEST_CASE("the background of a plain thread is never done, and its done is nil") {
    const context ctx = background();
    CHECK_FALSE(ctx.is_done());
    CHECK_FALSE(ctx.error());
    CHECK(ctx.cause() == nullptr);
    CHECK_FALSE(static_cast<bool>(ctx.done()));
    auto [child, cancel] = with_cancel(ctx);
    CHECK(is_open(child));
    cancel();
    CHECK(is_cancelled(child));
    CHECK_FALSE(ctx.is_done());
  }

  // Go: TestWithCancel.
  TEST_CASE("a cancel has ended all descendants when it returns, and nothing else") {
    in_virtual([] {
      auto root = with_cancel(background());
      auto a = with_cancel(root.ctx);
      const context value = with_value(a.ctx, int_key, 7);
      auto b = with_timeout(value, 1h);
      auto c = with_cancel(b.ctx);
      auto sibling = with_cancel(root.ctx);
      for (const context& ctx : {root.ctx, a.ctx, value, b.ctx, c.ctx, sibling.ctx})
        CHECK(is_open(ctx));
      a.cancel();
      for (const context& ctx : {a.ctx, value, b.ctx, c.ctx})
        CHECK(is_cancelled(ctx));
      CHECK(is_open(root.ctx));
      CHECK(is_open(sibling.ctx));
      CHECK(stats().timers_pending == 0);
    });
  }

  // Go: TestParentFinishesChild.
  TEST_CASE("a parent that ends forgets its children, of whatever kind") {
    in_virtual([] {
      auto parent = with_cancel(background());
      auto a = with_cancel(parent.ctx);
      auto b = with_timeout(parent.ctx, 1h);
      const context c = with_value(parent.ctx, int_key, 1);
      auto d = with_cancel(c);
      const auto f = after_func(parent.ctx, [] {});
      CHECK(children_of(parent.ctx) == 3);
      parent.cancel();
      CHECK(children_of(parent.ctx) == 0);
      CHECK_FALSE(f.stop());
      for (const context& ctx : {a.ctx, b.ctx, d.ctx})
        CHECK(is_cancelled(ctx));
      CHECK(children_of(background()) == 0);
    });
  }

  // Go: TestChildFinishesFirst, TestCancelRemoves.
  TEST_CASE("a child that ends leaves its parent, which goes on") {
    in_virtual([] {
      auto parent = with_cancel(background());
      auto by_cancel = with_cancel(parent.ctx);
      auto by_time = with_timeout(parent.ctx, 1s);
      {
        const auto by_drop = with_cancel(parent.ctx);
        CHECK(children_of(parent.ctx) == 3);
      }
      CHECK(children_of(parent.ctx) == 2);
      by_cancel.cancel();
      CHECK(children_of(parent.ctx) == 1);
      sleep_for(2s);
      CHECK(children_of(parent.ctx) == 0);
      CHECK(is_timed_out(by_time.ctx));
      CHECK(is_open(parent.ctx));
      by_time.cancel();
      CHECK(is_timed_out(by_time.ctx));
    });
  }

  TEST_CASE("a timeout is reported as the context's, by the wait and by error()") {
    in_virtual([] {
      const auto timed = with_timeout(background(), 1s);
      const auto check = [](const std::error_code& code, const std::string& text) {
        CHECK_MESSAGE(text.find("the context has passed its deadline") != std::string::npos, text);
        CHECK_MESSAGE(text.find("Connection timed out") == std::string::npos, text);
        CHECK(code == std::errc::timed_out);
        CHECK(code != std::errc::operation_canceled);
      };
      try {
        sleep_for(1h, timed.ctx);
        FAIL("returned");
      } catch (const cancelled& e) {
        check(e.code(), e.what());
        check(e.code(), e.code().message());
      }
      check(timed.ctx.error(), timed.ctx.error().message());
    });
  }

  TEST_CASE("dropping all handles of a pending one stops its timer and leaves the parent") {
    in_virtual([] {
      auto parent = with_cancel(background());
      {
        auto it = with_timeout(parent.ctx, 1h);
        CHECK(stats().timers_pending == 1);
        const context copy = it.ctx;
        it = {};
        CHECK(stats().timers_pending == 1);
        const auto done = copy.done();
        CHECK(children_of(parent.ctx) == 1);
      }
      CHECK(stats().timers_pending == 0);
      CHECK(children_of(parent.ctx) == 0);
    });
  }

  TEST_CASE("a receiver of done is a handle: the context still ends") {
    in_virtual([] {
      const auto start = clock::now();
      const auto done = with_timeout(background(), 1s).ctx.done();
      CHECK_FALSE(done.recv());
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("a child keeps its parent, so that its deadline and its values hold") {
    in_virtual([] {
      const auto start = clock::now();
      context child;
      {
        auto parent = with_timeout(background(), 1s);
        child = with_cancel(with_value(parent.ctx, name_key, "kept")).ctx;
      }
      CHECK(*child.value(name_key) == "kept");
      static_cast<void>(child.done().recv());
      CHECK(since(start) == 1s);
    });
  }

  // Go: TestValues.
  TEST_CASE("a value is found by its key in the nearest context that has it") {
    in_virtual([] {
      CHECK(background().value(name_key) == nullptr);
      const context a = with_value(background(), name_key, "a");
      const context b = with_value(with_cancel(a).ctx, int_key, 7);
      const context c = with_value(b, name_key, std::string("c"));
      CHECK(*a.value(name_key) == "a");
      CHECK(a.value(int_key) == nullptr);
      CHECK(*b.value(name_key) == "a");
      CHECK(*b.value(int_key) == 7);
      CHECK(*c.value(name_key) == "c");
      CHECK(*c.value(int_key) == 7);
      CHECK(c.value(other_key) == nullptr);  // a key of the same type
    });
  }

  TEST_CASE("a value is destroyed with the last context that has it") {
    const context_key<std::shared_ptr<int>> key;
    auto shared = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = shared;
    {
      context ctx = with_value(background(), key, std::move(shared));
      auto child = with_cancel(ctx);
      ctx = context();
      CHECK_FALSE(watch.expired());
      child.cancel();
      CHECK_FALSE(watch.expired());
    }
    CHECK(watch.expired());
  }

  // Go: TestSimultaneousCancels.
  TEST_CASE("simultaneous cancels of all of a tree return, and all of it is done") {
    in_runtime({{2, 4}, {}}, [] {
      for (int round = 0; round < rounds(40); ++round) {
        std::vector<cancellable> tree = {with_cancel(background())};
        seeded dice(static_cast<std::uint64_t>(round) + 1);
        for (int i = 1; i < 100; ++i)
          tree.push_back(with_cancel(tree[dice.below(static_cast<std::uint32_t>(i))].ctx));
        std::vector<std::size_t> order(tree.size());
        for (std::size_t i = 0; i < order.size(); ++i)
          order[i] = i;
        for (auto n = static_cast<std::uint32_t>(order.size()); n > 1; --n)
          std::swap(order[n - 1], order[dice.below(n)]);
        std::vector<vigil::fiber<>> fibers;
        std::atomic<int> undone{0};
        for (const std::size_t i : order) {
          fibers.push_back(vigil::spawn([&tree, &undone, i] {
            tree[i].cancel();
            // Synchronous, whichever cancel was faster.
            if (!is_cancelled(tree[i].ctx)) ++undone;
          }));
        }
        for (auto& f : fibers)
          f.join();
        CHECK(undone.load() == 0);
        for (const cancellable& c : tree)
          CHECK(is_cancelled(c.ctx));
      }
      CHECK(children_of(background()) == 0);
    });
  }

  // Go: TestWithCancel.
  TEST_CASE("a cancel returns only when all descendants are done, even beside another cancel") {
    in_runtime({{2}, {}}, [] {
      for (int round = 0; round < rounds(200); ++round) {
        auto top = with_cancel(background());
        auto middle = with_cancel(top.ctx);
        std::vector<context> below;
        context at = middle.ctx;
        for (int i = 0; i < 200; ++i)
          below.push_back(at = with_cancel(at).ctx);
        auto other = vigil::spawn([&] { top.cancel(); });
        middle.cancel();
        CHECK(below.back().is_done());
        other.join();
      }
    });
  }

  // Go: TestLayersCancel, TestLayersTimeout.
  TEST_CASE("thirty random layers pass a cancel, or a timeout, to the innermost and keep values") {
    for_each_seed(20, [](std::uint64_t seed) {
      for (const bool by_timeout : {false, true}) {
        seeded dice(seed);
        std::vector<cancellable> all;
        std::vector<std::unique_ptr<context_key<int>>> keys;
        const auto start = clock::now();
        if (by_timeout) {
          all.push_back(with_timeout(background(), 200ms));
        } else {
          all.push_back(with_cancel(background()));
        }
        context at = all.back().ctx;
        for (int i = 0; i < 30; ++i) {
          switch (dice.below(3)) {
            case 0:
              keys.push_back(std::make_unique<context_key<int>>());
              at = with_value(at, *keys.back(), static_cast<int>(keys.size()));
              break;
            case 1:
              all.push_back(with_cancel(at));
              at = all.back().ctx;
              break;
            default:
              all.push_back(with_timeout(at, 1h));
              at = all.back().ctx;
          }
        }
        const auto values_hold = [&] {
          for (std::size_t i = 0; i < keys.size(); ++i)
            CHECK(*at.value(*keys[i]) == static_cast<int>(i) + 1);
        };
        CHECK(is_open(at));
        values_hold();
        if (by_timeout) {
          static_cast<void>(at.done().recv());
          CHECK(since(start) == 200ms);
          CHECK(is_timed_out(at));
        } else {
          all[dice.below(static_cast<std::uint32_t>(all.size()))].cancel();
          CHECK(is_cancelled(at));
        }
        values_hold();
      }
    });
  }

  // Go: TestWithCancelCanceledParent.
  TEST_CASE("a child of a done context is done from the start, with its cause") {
    in_virtual([] {
      auto parent = with_cancel(background());
      parent.cancel(failure{7});
      const std::array children = {with_cancel(parent.ctx).ctx,
                                   with_timeout(parent.ctx, 1s).ctx,
                                   with_timeout(parent.ctx, -1s).ctx,
                                   with_cancel(with_value(parent.ctx, int_key, 1)).ctx};
      for (const context& child : children) {
        CHECK(is_cancelled(child));
        CHECK(number_of(child) == 7);
      }
      CHECK(children_of(parent.ctx) == 0);
      CHECK(stats().timers_pending == 0);
    });
  }

  // Go: TestWithCancelSimultaneouslyCanceledParent.
  TEST_CASE("a child made while its parent is cancelled is never left behind") {
    in_runtime({{2}, {}}, [] {
      for (int round = 0; round < rounds(2000); ++round) {
        auto parent = with_cancel(background());
        auto maker = vigil::spawn([&] { return with_timeout(parent.ctx, 1h).ctx; });
        parent.cancel(failure{round});
        const context child = maker.join();
        CHECK(is_cancelled(child));
        CHECK(number_of(child) == round);
        CHECK(stats().timers_pending == 0);
      }
    });
  }

  // Go: TestCause; TestWithoutCancel.
  TEST_CASE("without_cancel has the values, no deadline, and is never done") {
    in_virtual([] {
      auto parent = with_timeout(with_value(background(), name_key, "v"), 1s, cause_of(1));
      const context it = without_cancel(parent.ctx);
      CHECK(it.deadline() == clock::time_point::max());
      CHECK(*it.value(name_key) == "v");
      CHECK_FALSE(static_cast<bool>(it.done()));
      auto below = with_cancel(it);
      sleep_for(2s);
      CHECK(parent.ctx.is_done());
      CHECK_FALSE(it.is_done());
      CHECK(it.cause() == nullptr);
      CHECK_FALSE(it.error());
      CHECK(is_open(below.ctx));
      below.cancel();
      CHECK(is_cancelled(below.ctx));
    });
  }

  // Go: TestCustomContextPropagation, -Cause, -AfterFunc, -Goroutines.
  TEST_CASE("no fiber is started for contexts, however they are used") {
    in_virtual([] {
      const auto before = stats().fibers_alive;
      auto a = with_cancel(background());
      auto b = with_timeout(a.ctx, 1h);
      const auto f = after_func(b.ctx, [] {});
      const auto done = b.ctx.done();
      const auto token = vigil::stop_token_of(b.ctx);
      CHECK(stats().fibers_alive == before);
      CHECK(f.stop());
    });
  }

  // Node, libuv: AbortSignal.timeout holds nothing; with_timeout, timeout_list,
  // select are unref'd.
  TEST_CASE("a timer of a context keeps no program alive") {
    vigil::options o;
    o.exit = vigil::exit_when::all_done;
    context kept;
    in_virtual({.seed = 1, .runtime = o}, [&kept] {
      kept = with_timeout(background(), 1h).ctx;
      CHECK(stats().timers_pending == 1);
    });
    // The end did not wait for it: the root context was cancelled first.
    CHECK(kept.error() == std::errc::operation_canceled);
  }

  TEST_CASE("a chain of a hundred thousand is cancelled and destroyed without deep recursion") {
    std::vector<context> some;
    auto top = with_cancel(background());
    context at = top.ctx;
    for (int i = 0; i < rounds(100'000); ++i)
      at = with_cancel(at).ctx;
    const context last = at;
    {
      context dropped = with_cancel(background()).ctx;
      for (int i = 0; i < rounds(100'000); ++i)
        dropped = with_value(with_cancel(dropped).ctx, int_key, i);
    }
    top.cancel();
    CHECK(is_cancelled(last));
  }

  TEST_CASE("a child leaves a parent of a million as fast as a parent of a few") {
    const auto nanos_to_leave = [](int siblings) {
      auto parent = with_cancel(background());
      std::vector<context> others;
      others.reserve(static_cast<std::size_t>(siblings));
      for (int i = 0; i < siblings; ++i)
        others.push_back(with_cancel(parent.ctx).ctx);
      const auto start = processor_nanos();
      for (int i = 0; i < 1000; ++i)
        with_cancel(parent.ctx).cancel();
      const auto took = processor_nanos() - start;
      CHECK(children_of(parent.ctx) == static_cast<std::size_t>(siblings));
      return took / 1000;
    };
    const auto few = nanos_to_leave(10);
    const auto million = nanos_to_leave(rounds(1'000'000));
    // A walk over the siblings would take milliseconds.
    CHECK(million < few * 50 + 20'000);
  }
}
