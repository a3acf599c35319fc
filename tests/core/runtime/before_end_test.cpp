// options::before_end: the hook of a program that ends when all is done.
#include "core/runtime/runtime_test.hpp"

#include <functional>

using namespace vigil::testing_support;

namespace {

// The hook of the present test, and how often it was called.
std::function<bool(int)> hook;
std::atomic<int> calls;

bool call_hook() {
  return hook(++calls);
}

vigil::options with_hook(std::function<bool(int)> f) {
  hook = std::move(f);
  calls = 0;
  vigil::options o;
  o.exit = vigil::exit_when::all_done;
  o.before_end = &call_hook;
  return o;
}

template <class F>
void in_virtual_with_hook(std::function<bool(int)> f, F body) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    in_virtual({.seed = seed, .runtime = with_hook(f)}, body);
}

// The run is over after one call, with everything pending discarded.
template <class E>
void throws_out_of_run(const std::function<void()>& thrower) {
  bool ran = false;
  const vigil::options o = with_hook([&](int) {
    vigil::after_func(1h, [&ran] { ran = true; });
    thrower();
    return true;
  });
  CHECK_THROWS_AS(
      vigil::testing::run_virtual({.seed = 1, .runtime = o}, [&] { vigil::after_func(1s, [] {}); }),
      E);
  CHECK(calls.load() == 1);
  CHECK_FALSE(ran);
}

}  // namespace

TEST_SUITE("before the end") {
  // Node, libuv: beforeExit revives three times, by an immediate, a timer and a repeat,
  // and the fourth end is final (test-beforeexit-event).
  TEST_CASE("the hook revives the program three times, and the fourth end is final") {
    std::string log;
    const auto revive = [&log](int n) {
      log += 'e';
      switch (n) {
        case 1:
          vigil::post([&log] { log += 'p'; });
          return true;
        case 2:
          vigil::after_func(1s, [&log] { log += 't'; });
          return true;
        case 3: {
          auto left = std::make_shared<int>(3);
          auto beat = std::make_shared<vigil::timer>();
          *beat = vigil::every(1s, [&log, left, beat] {
            log += 'r';
            if (--*left == 0) beat->stop();
            if (*left == 0) *beat = {};
          });
          return true;
        }
        default:
          return false;
      }
    };
    in_virtual_with_hook(revive, [&log] {
      log = "";
      vigil::go([&log] {
        vigil::sleep_for(1s);
        log += 'm';
      });
    });
    CHECK(log == "mepeterrre");
    CHECK(calls.load() == 4);
  }

  // Fibers that end at once may have ended before the hook returns.
  TEST_CASE("in real time, with any number of workers, as well") {
    for (const unsigned workers : {1u, 2u, 4u}) {
      for (int i = 0; i < rounds(200); ++i) {
        std::atomic<int> ran{0};
        vigil::options o = with_hook([&ran](int n) {
          if (n > 3) return false;
          vigil::go([&ran] { ++ran; });
          vigil::after_func(10us, [&ran] { ++ran; });
          return true;
        });
        o.workers = workers;
        CHECK(vigil::run(o, [] { return 7; }) == 7);
        CHECK(calls.load() == 4);
        CHECK(ran.load() == 6);
      }
    }
  }

  TEST_CASE("it is called on the main fiber when nothing is left, and may wait there") {
    const auto main_id = std::make_shared<std::uint64_t>(0);
    bool over = false;
    in_virtual_with_hook(
        [&](int) {
          CHECK(over);
          CHECK(vigil::this_fiber::id() == *main_id);
          CHECK(vigil::stats().fibers_alive == 1);
          vigil::sleep_for(1s);
          CHECK(vigil::spawn([] { return 7; }).join() == 7);
          return false;
        },
        [&] {
          over = false;
          *main_id = vigil::this_fiber::id();
          vigil::after_func(1h, [&over] { over = true; });
        });
    CHECK(calls.load() == 1);
  }

  TEST_CASE("after false the program still waits for what the hook has left, and does not ask") {
    bool ran = false;
    in_virtual_with_hook(
        [&ran](int) {
          ran = false;
          vigil::after_func(1h, [&ran] { ran = true; });
          return false;
        },
        [] {});
    CHECK(calls.load() == 1);
    CHECK(ran);
  }

  TEST_CASE("after true with nothing started it is called again at once") {
    in_virtual_with_hook([](int n) { return n < 10; }, [] {});
    CHECK(calls.load() == 10);
  }

  // Node, libuv: an unref'd timer in beforeExit does not revive
  // (test-timers-unrefed-in-beforeexit).
  TEST_CASE("an unreferenced timer of the hook does not hold the program") {
    bool ran = false;
    in_virtual_with_hook(
        [&ran](int n) {
          vigil::after_func(1s, [&ran] { ran = true; }).unref();
          return n < 2;
        },
        [] {});
    CHECK(calls.load() == 2);
    CHECK_FALSE(ran);
  }

  TEST_CASE("what the hook defers runs, and its fiber_locals end with each call") {
    static int alive;
    static int made;
    alive = made = 0;

    struct counted {
      counted() {
        ++alive;
        ++made;
      }

      ~counted() { --alive; }

      bool is_used = false;
    };

    static vigil::fiber_local<counted> local;
    int deferred = 0;
    in_virtual_with_hook(
        [&deferred](int n) {
          CHECK(alive == 0);
          local->is_used = true;
          vigil::defer([&deferred] {
            CHECK(alive == 0);
            ++deferred;
          });
          return n < 3;
        },
        [] { local->is_used = true; });
    CHECK(deferred == 9);
    CHECK(made == 3 * 4);
    CHECK(alive == 0);
  }

  TEST_CASE("it is called in each run of a runtime") {
    vigil::runtime rt(with_hook([](int) { return false; }));
    for (int i = 1; i <= 3; ++i) {
      rt.run([] { vigil::go([] {}); });
      CHECK(calls.load() == i);
    }
  }

  TEST_CASE("it is not called when the run ends with the main fiber") {
    vigil::options o = with_hook([](int) { return true; });
    o.exit = vigil::exit_when::main_returns;
    vigil::run(o, [] {});
    CHECK(calls.load() == 0);
  }

  TEST_CASE("it is not called after an exception of the main fiber, or a deadlock") {
    const vigil::options o = with_hook([](int) { return true; });
    CHECK_THROWS_AS(vigil::run(o, [] { throw std::runtime_error("x"); }), std::runtime_error);
    CHECK_THROWS_AS(
        vigil::testing::run_virtual({.seed = 1, .runtime = o},
                                    [] { vigil::go([] { vigil::make_channel<int>().recv(); }); }),
        vigil::deadlock);
    CHECK(calls.load() == 0);
  }

  TEST_CASE("a stop that comes before the end leaves it out, with a grace and without") {
    for (const auto grace : {0s, 10s}) {
      vigil::options o = with_hook([](int) { return true; });
      o.grace = grace;
      vigil::testing::run_virtual({.seed = 1, .runtime = o}, [] {
        vigil::go([] { vigil::sleep_for(1s); });
        vigil::after_func(500ms, [] { vigil::runtime::current().request_stop(); });
      });
      CHECK(calls.load() == 0);
    }
    vigil::runtime rt(with_hook([](int) { return true; }));
    rt.request_stop();
    rt.run([] {});
    CHECK(calls.load() == 0);
  }

  TEST_CASE("a stop by a plain thread ends a run whose hook always asks for more") {
    for (const unsigned workers : {1u, 2u}) {
      vigil::options o = with_hook([](int) { return true; });
      o.workers = workers;
      vigil::runtime rt(o);
      std::thread other([&rt] {
        while (calls.load() < 100)
          std::this_thread::yield();
        rt.request_stop();
      });
      rt.run([] {});
      other.join();
      CHECK(calls.load() >= 100);
    }
  }

  TEST_CASE("a stop after a revival ends the run without another call") {
    vigil::runtime rt(with_hook([](int) {
      vigil::go([] { vigil::sleep_for(std::chrono::hours::max()); });
      vigil::post([] { vigil::runtime::current().request_stop(); });
      return true;
    }));
    CHECK(rt.run([] { return 7; }) == 7);
    CHECK(calls.load() == 1);
  }

  TEST_CASE("a stop ends a wait of the hook, and the result of the main fiber is kept") {
    for (const unsigned workers : {1u, 2u}) {
      bool came_through = false;
      vigil::options o = with_hook([&came_through](int) {
        vigil::runtime::current().request_stop();
        vigil::sleep_for(1h);
        came_through = true;
        return true;
      });
      o.workers = workers;
      CHECK(vigil::run(o, [] { return 7; }) == 7);
      CHECK(calls.load() == 1);
      CHECK_FALSE(came_through);
    }
  }

  TEST_CASE("an exception of the hook ends the run and comes out of it") {
    throws_out_of_run<std::runtime_error>([] { throw std::runtime_error("x"); });
    throws_out_of_run<vigil::cancelled>([] {
      const auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      cancel();
      vigil::sleep_for(1s, ctx);
    });
  }

  TEST_CASE("fibers that it leaves parked for ever are a deadlock") {
    const vigil::options o = with_hook([](int) {
      vigil::go([] { vigil::make_channel<int>().recv(); });
      return true;
    });
    CHECK_THROWS_AS(vigil::testing::run_virtual({.seed = 1, .runtime = o}, [] {}), vigil::deadlock);
    CHECK(calls.load() == 1);
  }
}
