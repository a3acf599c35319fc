// join: of two callers with one handle, one waits for the end and the other is refused.
//
// They share the word is_joined, which is set under the lock of fiber_joining and, once
// has_ended is seen, read without it. The programs call the functions that fiber::join
// calls before it takes the result: the handle itself is for one thread at a time.
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/error.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using programs::run_with_outside_work;
using vigil::detail::current_fiber;
using vigil::detail::fiber;
using vigil::detail::fiber_state;

namespace {

// Two workers: one has the main fiber, the other a fiber that keeps it busy until it may
// end.
struct joined_fiber {
  vigil::fiber<void> handle;
  fiber* core = nullptr;

  joined_fiber() {
    handle = vigil::spawn([this] {
      core = current_fiber();
      has_begun_.store(true);
      programs::busy_until(may_end_);
    });
    programs::busy_until(has_begun_);
  }

  void let_end() { may_end_.store(true); }

  // As in join_for, whose caller has the handle to itself again.
  void take_back() { core->joining.is_joined.store(false); }

 private:
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> may_end_{false};
};

bool is_refused(fiber* core) {
  try {
    vigil::detail::join(core, vigil::detail::no_limit);
  } catch (const vigil::wrong_place&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("join: one of two waits for the same fiber's end is refused") {
  model::take_outcomes();
  prove("join: two begin to wait", [] {
    run_with_outside_work(2, [] {
      const auto f = std::make_unique<joined_fiber>();
      // The refused caller lets the fiber end, and with it the other's wait.
      const auto joins = [&f] {
        const bool refused = is_refused(f->core);
        if (refused) f->let_end();
        return refused;
      };
      bool there = false;
      bool here = false;
      {
        const model::window looked_at;
        std::thread other([&] { there = joins(); });
        here = joins();
        other.join();
      }
      model::require(here != there, "one of them is refused");
      model::note_outcome(here ? "the fiber" : "the thread");
      f->take_back();
      f->handle.join();
    });
  });
  expect_outcomes({"the fiber", "the thread"});
}

TEST_CASE("join: a second join that comes as the fiber ends is refused") {
  prove("join: a second one against the end", [] {
    run_with_outside_work(2, [] {
      const auto f = std::make_unique<joined_fiber>();
      const fiber& main = *current_fiber();
      bool refused = false;
      std::thread second([&] {
        // Relaxed: the look must not acquire what the other thread has done.
        model::wait_until(
            [&] { return main.state.load(std::memory_order_relaxed) == fiber_state::parked; });
        const model::window looked_at;
        f->let_end();
        refused = is_refused(f->core);
      });
      vigil::detail::join(f->core, vigil::detail::no_limit);
      second.join();
      model::require(refused, "the result is the other's");
      f->take_back();
      f->handle.join();
    });
  });
}

TEST_CASE("join: a limit that passes as the fiber ends leaves the handle to be joined again") {
  model::take_outcomes();
  prove("join: a limit against the end", [] {
    run_with_outside_work(2, [] {
      const auto f = std::make_unique<joined_fiber>();
      const model::window looked_at;
      f->let_end();
      const bool in_time = f->handle.join_for(1ms);
      model::note_outcome(in_time ? "in time" : "late");
      f->handle.join();
    });
  });
  expect_outcomes({"in time", "late"});
}
