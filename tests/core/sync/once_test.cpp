// once: one run, whose end the others wait for, even if it throws or is stopped.
#include "core/sync/sync_test.hpp"

#include <memory>

using namespace vigil::testing_support;
using vigil::once;

namespace {

struct target {
  void member() {}
};

// Both forms call f(args...): a pointer to a member is refused where the call stands.
template <class... A>
concept can_be_called = requires(once& o, A... args) { o.call(args...); };
static_assert(can_be_called<void (*)()>);
static_assert(can_be_called<const vigil::context&, void (*)(int), int>);
static_assert(!can_be_called<void (target::*)(), target>);
static_assert(!can_be_called<const vigil::context&, void (target::*)(), target>);

void fails_in_a_second() {
  sleep_for(1s);
  throw std::runtime_error("on purpose");
}

}  // namespace

TEST_SUITE("once") {
  // Go: Once: one run, all wait (TestOnce).
  TEST_CASE("one of many simultaneous callers runs the function, the others wait for its end") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      for (int i = 0; i < rounds(200); ++i) {
        once o;
        int runs = 0;
        crowd all;
        const auto come = [&] {
          o.call([&] {
            ++runs;
            if (vigil::this_fiber::id() != 0) vigil::this_fiber::yield();
          });
          CHECK(runs == 1);
          CHECK(o.is_done());
        };
        for (int f = 0; f < 4; ++f)
          all.add(come);
        std::thread a(come);
        all.join();
        a.join();
        o.call([] { CHECK(false); });
      }
    });
  }

  TEST_CASE("passes its arguments on and drops the result") {
    once o;
    int sum = 0;
    o.call(
        [&](int a, std::unique_ptr<int> b) {
          sum = a + *b;
          return 1;
        },
        3,
        std::make_unique<int>(4));
    CHECK(sum == 7);
  }

  TEST_CASE("a context bounds the wait for another's run, not the run") {
    in_virtual([] {
      const auto start = clock::now();
      once o;
      auto it = vigil::with_timeout(vigil::background(), 1s);
      auto runner = spawn([&] {
        o.call(
            it.ctx, [](auto d) { sleep_for(d); }, 2s);
      });
      settle();
      CHECK_THROWS_AS(o.call(it.ctx, [] {}), vigil::cancelled);
      CHECK(since(start) == 1s);
      CHECK_FALSE(o.is_done());
      o.call(vigil::background(), [] {});
      CHECK(since(start) == 2s);
      runner.join();
      o.call(it.ctx, [] { FAIL("run twice"); });
      CHECK_THROWS_AS(o.call(vigil::context(), [] {}), std::invalid_argument);
    });
  }

  TEST_CASE("a wait for one run after another keeps the context that it began with") {
    in_virtual([] {
      const auto start = clock::now();
      once o;
      auto ctx = vigil::with_timeout(vigil::background(), 3s).ctx;
      auto runs_twice = spawn([&] {
        CHECK_THROWS_AS(o.call(fails_in_a_second), std::runtime_error);
        o.call([] { sleep_for(1h); });
      });
      settle();
      auto waits = spawn([&] { o.call(ctx, [] { FAIL("run by who waits"); }); });
      settle();
      ctx = vigil::context();
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      CHECK(since(start) == 3s);
      runs_twice.join();
    });
  }

  TEST_CASE("releases a context without its lock: objects destroyed with the context may call it") {
    static once o;

    struct calls {
      explicit calls(bool& told) noexcept : died(&told) {}

      calls(calls&& other) noexcept : died(std::exchange(other.died, nullptr)) {}

      ~calls() {
        if (died == nullptr) return;
        o.call([] { FAIL("run twice"); });
        *died = true;
      }

      bool* died;
    };

    static const vigil::context_key<calls> key;
    bool died = false;
    in_virtual([&] {
      auto ctx = vigil::with_cancel(vigil::with_value(vigil::background(), key, calls(died))).ctx;
      crowd all;
      all.add([&] {
        CHECK_THROWS_AS(o.call(fails_in_a_second), std::runtime_error);
        o.call([] { sleep_for(1s); });
      });
      settle();
      all.add([&] { o.call(ctx, [] { FAIL("run by who waits"); }); });
      settle();
      ctx = vigil::context();
      all.join();
    });
    CHECK(died);
  }

  // Go: Once: TestOncePanic.
  TEST_CASE("an exception goes to its caller, and the next caller runs its own function") {
    for_each_seed(10, [] {
      once o;
      int runs = 0;
      int failures = 0;
      crowd all;
      for (int i = 0; i < 4; ++i) {
        all.add([&] {
          try {
            o.call([&] {
              sleep_for(1ms);
              if (++runs < 3) throw std::runtime_error("on purpose");
            });
          } catch (const std::runtime_error&) {
            ++failures;
          }
        });
      }
      all.join();
      CHECK(runs == 3);
      CHECK(failures == 2);
      CHECK(o.is_done());
    });
  }

  TEST_CASE("a call from within itself is an error instead of an endless wait") {
    in_virtual([] {
      once o;
      CHECK(holds(text_of<std::logic_error>([&] { o.call([&] { o.call([] {}); }); }), "again"));
      CHECK_FALSE(o.is_done());
      o.call([] {});
      CHECK(o.is_done());
    });
    once outside;
    CHECK_THROWS_AS(outside.call([&] { outside.call([] {}); }), std::logic_error);
  }

  TEST_CASE("a stop ends the wait for the other, and the stopped fiber's function is undone") {
    in_virtual([] {
      once o;
      auto runner = spawn([&] { o.call([] { sleep_for(1h); }); });
      settle();
      auto waiting = spawn([&] { o.call([] { CHECK(false); }); });
      settle();
      waiting.request_stop();
      CHECK_THROWS_AS(waiting.join(), vigil::cancelled);
      runner.request_stop();
      CHECK_THROWS_AS(runner.join(), vigil::cancelled);
      CHECK_FALSE(o.is_done());
      bool ran = false;
      o.call([&] { ran = true; });
      CHECK(ran);
    });
  }
}
