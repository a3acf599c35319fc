// A function on a side pool: its return and whatever ends its caller's wait race, and
// exactly one comes first; neither the pool nor the runtime is touched once it may be
// gone (SC1, SC2 and SC4 of sched/run/side_call.hpp).
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/blocking.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using programs::counted;
using programs::long_window;
using programs::workers;

namespace {

std::unique_ptr<vigil::blocking_pool> pool_of_one() {
  return std::make_unique<vigil::blocking_pool>(
      vigil::blocking_options{.threads = 1, .name = "pool"});
}

// The pool's thread exists and rests.
void warm(vigil::blocking_pool& pool) {
  vigil::blocking(pool, [] {});
  vigil::sleep_for(1ms);  // until no other thread can go on
}

}  // namespace

TEST_CASE("side call: its result goes to its caller or is destroyed, however the wait ends") {
  prove("side call: return against timeout", [] {
    std::atomic<int> alive{0};
    {
      const auto pool = pool_of_one();
      vigil::runtime rt(workers(1));
      rt.run([&] {
        warm(*pool);
        const model::window w;
        const auto got = vigil::blocking_for(
            *pool, 1ms, [&alive, c = counted(alive)] { return counted(alive); });
        model::note_outcome(got.has_value() ? "value" : "timeout");
      });
    }
    model::require(alive.load() == 0, "captures and result have died, once");
  });
  expect_outcomes({"value", "timeout"});
}

TEST_CASE("side call: a pool goes away once its function has returned and the wait has ended") {
  prove("side call: withdraw against the pool's end", [] {
    vigil::runtime rt(workers(1));
    rt.run([] {
      auto pool = pool_of_one();
      warm(*pool);
      auto it = vigil::with_cancel(vigil::background());
      auto caller = vigil::spawn([&pool, &it] {
        const model::window w;
        try {
          vigil::blocking(*pool, it.ctx, [] {});
          model::note_outcome("returned");
        } catch (const vigil::cancelled&) {
          model::note_outcome("cancelled");
        }
      });
      vigil::this_fiber::yield();
      it.cancel();
      pool.reset();
      caller.join();
    });
  });
  expect_outcomes({"returned"});
}

TEST_CASE("side call: the runtime goes away as soon as its last function has returned") {
  prove("side call: call_over against the end of the run", [] {
    std::atomic<int> alive{0};
    const auto pool = pool_of_one();
    long_window w;
    {
      vigil::runtime rt(workers(1));
      rt.run([&] {
        warm(*pool);
        w.emplace();
        vigil::blocking(*pool, [c = counted(alive)] {});
      });
    }
    w.reset();
    model::require(alive.load() == 0, "the captures have died");
  });
}

TEST_CASE("side call: an abandoned call keeps the runtime until it has returned") {
  prove("side call: left, and the end of the run", [] {
    std::atomic<int> alive{0};
    const auto pool = pool_of_one();
    long_window w;
    bool ran = false;
    {
      vigil::runtime rt(workers(1));
      rt.run([&] {
        warm(*pool);
        vigil::go([&] {
          w.emplace();
          vigil::blocking(*pool, [&ran, c = counted(alive)] { ran = true; });
        });
        vigil::this_fiber::yield();
      });
      model::note_outcome(ran ? "ran" : "withdrawn");
    }
    w.reset();
    model::require(alive.load() == 0, "the captures have died");
  });
  expect_outcomes({"ran", "withdrawn"});
}
