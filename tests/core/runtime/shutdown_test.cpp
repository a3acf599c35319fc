// How a program ends: every fiber is unwound, whatever it is doing.
#include "core/runtime/runtime_test.hpp"

#include <vigil/stop_token.hpp>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <stop_token>

using namespace vigil::testing_support;

namespace {

// Counts its instances: every destructor must run.
struct counted {
  explicit counted(std::atomic<int>& n) : alive(&n) { ++*alive; }

  counted(const counted& other) : alive(other.alive) { ++*alive; }

  counted(counted&& other) noexcept : alive(other.alive) { ++*alive; }

  ~counted() { --*alive; }

  counted& operator=(const counted&) = delete;
  std::atomic<int>* alive;
};

struct sleeps_when_destroyed {
  std::atomic<int>* slept;

  ~sleeps_when_destroyed() {
    // While an exception passes, a stop does not end the wait.
    if (std::uncaught_exceptions() == 0) return;
    vigil::sleep_for(30ms);
    ++*slept;
  }
};

void under_shield(std::atomic<int>& done) noexcept {
  const vigil::this_fiber::shield shield;
  vigil::sleep_for(20ms);
  ++done;
}

}  // namespace

TEST_SUITE("shutdown") {
  // Go: TestGoexitDefer. Node, libuv: a closing handle's callback still runs
  // (tcp_ref2b).
  TEST_CASE("every fiber is unwound, wherever it is parked, and nothing is left") {
    std::atomic<int> alive{0};
    std::atomic<int> slept{0};
    std::atomic<int> shielded{0};
    std::atomic<int> caught{0};
    std::mutex held;
    const auto body = [&] {
      const counted here(alive);
      vigil::go([c = counted(alive)] { vigil::sleep_for(1h); });
      vigil::go([c = counted(alive), &caught] {
        try {
          throw std::runtime_error("x");
        } catch (const std::exception&) {
          try {
            vigil::sleep_for(1h);
          } catch (const vigil::stopped&) {
            ++caught;
            throw;
          }
        }
      });
      vigil::go([c = counted(alive), &slept] {
        try {
          const sleeps_when_destroyed guard{&slept};
          throw 1;
        } catch (int) {
        }
        vigil::sleep_for(1h);
      });
      vigil::go([c = counted(alive), &held] {
        const vigil::this_fiber::pin pin;
        const std::lock_guard lock(held);
        vigil::sleep_for(1h);
      });
      vigil::go([c = counted(alive), &alive] {
        const auto child = vigil::spawn([c2 = counted(alive)] { vigil::sleep_for(1h); });
        vigil::sleep_for(1h);
      });
      vigil::go([c = counted(alive), &alive] {
        vigil::spawn([c2 = counted(alive)] { vigil::sleep_for(1h); }).join();
      });
      vigil::go([c = counted(alive), &shielded] { under_shield(shielded); });
      vigil::go([c = counted(alive)] {
        for (int i = 0; i < 10; ++i) {
          try {
            vigil::sleep_for(1h);
          } catch (const vigil::stopped&) {
          }
        }
      });
      for (int i = 0; i < 100; ++i) {
        vigil::after_func(1h, [c = counted(alive)] {});
        vigil::every(1h, [c = counted(alive)] {});
      }
      vigil::after_func(1ms, [c = counted(alive)] { vigil::sleep_for(1h); });
      vigil::sleep_for(10ms);
    };
    const auto check = [&] {
      CHECK(alive == 0);
      CHECK(caught == 1);
      CHECK(slept == 1);
      CHECK(shielded == 1);
      caught = slept = shielded = 0;
    };
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      in_virtual({.seed = seed, .runtime = {}}, body);
      check();
    }
    for (const unsigned workers : {1u, 2u, 4u}) {
      in_runtime({.workers = {workers}, .settings = {}}, body);
      check();
    }
  }

  TEST_CASE("a call that can complete at once still completes while stopping; a wait throws") {
    in_virtual([] {
      bool joined = false;
      int thrown = 0;
      auto child = vigil::spawn([] { return 7; });
      auto f = vigil::spawn([&, child = std::move(child)]() mutable {
        try {
          vigil::sleep_for(1h);
        } catch (const vigil::stopped&) {
        }
        joined = child.join() == 7;
        for (const auto& wait : {+[] { vigil::sleep_for(0s); },
                                 +[] { vigil::sleep_for(-1s); },
                                 +[] { vigil::this_fiber::yield(); }}) {
          try {
            wait();
          } catch (const vigil::stopped&) {
            ++thrown;
          }
        }
      });
      vigil::sleep_for(1s);
      f.request_stop();
      f.join();
      CHECK(joined);
      CHECK(thrown == 3);
    });
  }

  TEST_CASE("the grace period lets fibers end by themselves") {
    vigil::testing::virtual_options how;
    how.runtime.grace = 5s;
    int finished = 0;
    int unwound = 0;
    vigil::testing::run_virtual(how, [&] {
      for (const auto length : {1s, 4s, 6s, 9s}) {
        vigil::go([&, length] {
          try {
            vigil::sleep_for(length);
            ++finished;
          } catch (const vigil::stopped&) {
            ++unwound;
            throw;
          }
        });
      }
      vigil::this_fiber::yield();
    });
    CHECK(finished == 2);
    CHECK(unwound == 2);
  }

  TEST_CASE("join throws cancelled for a fiber that ended by stopped") {
    in_virtual([] {
      auto f = vigil::spawn([] {
        vigil::sleep_for(1h);
        return 1;
      });
      vigil::this_fiber::yield();
      f.request_stop();
      try {
        static_cast<void>(f.join());
        CHECK(false);
      } catch (const vigil::cancelled& e) {
        CHECK(e.code() == std::errc::operation_canceled);
      }
    });
  }

  TEST_CASE("child: swallows everything" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      vigil::go([] {
        vigil::this_fiber::set_name("glutton");
        for (;;) {
          try {
            vigil::sleep_for(1h);
          } catch (...) {
          }
        }
      });
      vigil::sleep_for(10ms);
    });
  }

  TEST_CASE("a fiber that swallows stopped for ever ends the program by name") {
    const child_result r = run_child("child: swallows everything");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("glutton"));
    CHECK(r.says("swallowed vigil::stopped, or vigil::deadlock, 1000 times"));
  }

  TEST_CASE("child: outlives the stop limit" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    o.stop_limit = 1s;  // all have parked before
    std::atomic<bool> up{false};
    vigil::run(o, [&up] {
      vigil::go([&up] {
        vigil::this_fiber::set_name("stubborn");
        const vigil::this_fiber::shield shield;
        up = true;
        vigil::sleep_for(1h);
      });
      while (!up)
        vigil::sleep_for(100us);
    });
  }

  TEST_CASE("a fiber that outlives the stop limit ends the program by name") {
    const child_result r = run_child("child: outlives the stop limit");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("stubborn"));
    CHECK(r.says("options::stop_limit"));
    CHECK(r.says("sleep"));
    CHECK_FALSE(r.says("(main), "));  // it only waits for the shutdown
  }

  TEST_CASE("the main fiber of another runtime starts no fiber in one that is closed") {
    enum : int { before, closed, tried };

    std::atomic<int> step{before};
    bool refused = false;
    vigil::runtime rt;
    std::thread another([&] {
      vigil::run([&] {
        while (step != closed)
          vigil::this_fiber::yield();
        try {
          rt.go([] {});
        } catch (const vigil::runtime_gone&) {
          refused = true;
        }
        step = tried;
      });
    });

    struct dies_last {
      explicit dies_last(std::atomic<int>& s) : step(s) {}

      dies_last(const dies_last&) = delete;
      dies_last& operator=(const dies_last&) = delete;

      ~dies_last() {
        step = closed;
        while (step != tried)
          std::this_thread::yield();
      }

      std::atomic<int>& step;
    };

    rt.run([&] { vigil::after_func(1h, [c = std::make_shared<dies_last>(step)] {}); });
    another.join();
    CHECK(refused);
  }

  TEST_CASE("child: blocks in a callback of the root context" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    o.stop_limit = 1s;  // all have parked before
    vigil::runtime rt(o);
    std::atomic<bool> registered{false};
    rt.run([&] {
      const auto block = [] {
        // Blocks its thread on purpose, as a computation without an end does.
        while (std::getenv("VIGIL_TEST_COMPUTE") != nullptr)
          std::this_thread::sleep_for(10ms);
        const vigil::this_fiber::shield shield;
        vigil::sleep_for(1h);
      };
      vigil::go([&] {
        const std::stop_callback bad(vigil::stop_token_of(vigil::background()), block);
        const vigil::this_fiber::shield shield;
        registered = true;
        vigil::sleep_for(1h);
      });
      while (!registered)
        vigil::sleep_for(100us);
      if (std::getenv("VIGIL_TEST_REQUEST_STOP") == nullptr) return;
      rt.request_stop();
      vigil::sleep_for(1h);
    });
  }

  TEST_CASE(
      "a callback of the root context that outlives the stop limit ends the program by name") {
    const char* const test = "child: blocks in a callback of the root context";
    const child_result main_ended = run_child(test);
    CHECK(main_ended.died_by(SIGABRT));
    CHECK(main_ended.says("options::stop_limit"));
    CHECK(main_ended.says("(main), parked, waits for: sleep"));
    CHECK(main_ended.says("inside a stop_callback"));
    const child_result asked_to = run_child(test, {{"VIGIL_TEST_REQUEST_STOP", "1"}});
    CHECK(asked_to.died_by(SIGABRT));
    CHECK(asked_to.says("options::stop_limit"));
    CHECK(asked_to.says("(shutdown), parked, waits for: sleep"));
    CHECK(asked_to.says("inside a stop_callback"));
    const child_result computes =
        run_child(test, {{"VIGIL_TEST_REQUEST_STOP", "1"}, {"VIGIL_TEST_COMPUTE", "1"}});
    CHECK(computes.died_by(SIGABRT));
    CHECK(computes.says("(shutdown), running, waits for: nothing"));
  }

  TEST_CASE("a callback of the root context may take its time, and the run's end waits for it") {
    std::atomic<int> done{0};
    using slow_callback = std::stop_callback<std::function<void()>>;
    std::unique_ptr<slow_callback> slow;
    const auto register_one = [&](auto length) {
      slow =
          std::make_unique<slow_callback>(vigil::stop_token_of(vigil::background()), [&, length] {
            const vigil::this_fiber::shield shield;
            vigil::sleep_for(length);
            ++done;
          });
    };
    in_virtual([&] { register_one(9s); });  // with a limit of ten
    CHECK(done == 1);
    in_runtime({{2}, {}}, [&](vigil::runtime& rt) {
      register_one(20ms);
      rt.request_stop();
      vigil::sleep_for(5ms);
    });
    CHECK(done == 2);
  }

  TEST_CASE("child: waits in a noexcept function without a shield" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      vigil::go([] {
        vigil::this_fiber::set_name("careless");
        []() noexcept { vigil::sleep_for(1h); }();
      });
      vigil::sleep_for(10ms);
    });
  }

  TEST_CASE("a wait in a noexcept function without a shield ends the program by name") {
    const child_result r = run_child("child: waits in a noexcept function without a shield");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("careless"));
    CHECK(r.says("must be under this_fiber::shield"));
  }
}
