// exit_when::all_done: the run ends when nothing can come any more, not before, and it
// does end (all_done() in sched/run/end.cpp, timer/keepalive.hpp).
#include "core/base/atomic.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/post.hpp>
#include <vigil/sync.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using programs::let_the_other_rest;
using programs::long_window;
using programs::reports_deadlock;
using programs::run_without_deadlock;

namespace {

vigil::options until_done(unsigned n) {
  vigil::options o = programs::strict_workers(n);
  o.exit = vigil::exit_when::all_done;
  return o;
}

// The main fiber ends beside a worker at rest, once `start` has begun the chain that sets
// the flag.
template <class Start>
void runs_to_its_end(Start start) {
  bool whole = false;
  long_window w;
  {
    vigil::runtime rt(until_done(2));
    run_without_deadlock(rt, [&] {
      let_the_other_rest();
      w.emplace();
      start(whole);
    });
  }
  w.reset();
  model::require(whole, "it has run to its end");
}

// A plain thread calls `let_go` for the only timer as the main fiber ends.
template <class LetGo>
void ends_without_its_timer(std::chrono::nanoseconds delay, LetGo let_go) {
  vigil::timer t;
  vigil::runtime rt(until_done(1));
  long_window w;
  std::thread outside;
  run_without_deadlock(rt, [&] {
    t = vigil::after_func(delay, [] {});
    w.emplace();
    outside = std::thread([&t, let_go] { let_go(t); });
  });
  w.reset();
  outside.join();
}

}  // namespace

TEST_CASE("all done: a callback that starts as the main fiber looks runs to its end") {
  prove("all done: a posted function on another worker", [] {
    runs_to_its_end([](bool& whole) {
      vigil::post([&whole] {
        vigil::this_fiber::yield();
        whole = true;
        model::enough();
      });
    });
  });
}

TEST_CASE("all done: a fiber that starts as the last one ends runs to its end") {
  prove("all done: the last fiber starts another", [] {
    runs_to_its_end([](bool& whole) {
      vigil::go([&whole] {
        vigil::go([&whole] {
          vigil::this_fiber::yield();
          whole = true;
        });
      });
    });
  });
}

TEST_CASE("all done: a plain thread takes away the last timer, and the run ends") {
  prove("all done: stop from a plain thread as the main fiber looks",
        [] { ends_without_its_timer(1h, [](vigil::timer& t) { t.stop(); }); });
}

TEST_CASE("all done: a plain thread unreferences the last timer as it fires, and the run ends") {
  prove("all done: unref from a plain thread as the timer fires",
        [] { ends_without_its_timer(1ms, [](vigil::timer& t) { t.unref(); }); });
}

TEST_CASE("all done: a plain thread lets go of a timer that never fires, and the run ends") {
  prove("all done: unref from a plain thread, no other look", [] {
    vigil::timer t;
    vigil::options o = until_done(1);
    o.deadlock = vigil::on_deadlock::warn;
    vigil::runtime rt(o);
    long_window w;
    std::thread outside;
    rt.run([&] {
      t = vigil::after_func(std::chrono::hours::max(), [] {});
      w.emplace();
      outside = std::thread([&t] { t.unref(); });
    });
    w.reset();
    outside.join();
  });
}

// Everything pending at the end is discarded: a timer that has neither fired nor was
// pending when it was stopped was not waited for. The explorer may let an hour pass.

TEST_CASE("all done: a plain thread hands the hold from one timer to another") {
  prove("all done: reset of one, then stop of the other", [] {
    vigil::timer first;
    vigil::timer second;
    bool fired = false;
    bool prevented = false;
    vigil::runtime rt(until_done(1));
    long_window w;
    std::thread outside;
    run_without_deadlock(rt, [&] {
      first = vigil::after_func(1h, [&] { fired = true; });
      second = vigil::after_func(1h, [&] { fired = true; });
      second.stop();
      w.emplace();
      outside = std::thread([&] {
        second.reset(1h);
        first.stop();
        prevented = second.stop();
        w.reset();
      });
    });
    outside.join();
    model::require(prevented || fired, "a timer holds the program all the time");
  });
}

TEST_CASE("all done: a plain thread with a work_guard takes away the last timer") {
  prove("all done: stop under a work_guard as the main fiber looks", [] {
    vigil::timer t;
    vigil::detail::atomic<bool> is_announced{false};
    vigil::runtime rt(until_done(1));
    long_window w;
    std::thread outside;
    run_without_deadlock(rt, [&] {
      t = vigil::after_func(1h, [] {});
      w.emplace();
      outside = std::thread([&] {
        vigil::work_guard announced = rt.make_work_guard();
        if (!t.stop()) return;  // the explorer has let the hour pass
        is_announced.store(true);
        is_announced.store(false);
        announced.release();
      });
    });
    const bool ended_early = is_announced.load();
    w.reset();
    outside.join();
    model::require(!ended_early, "the guard holds the program");
  });
}

TEST_CASE("all done: fibers that wait for ever are found as the last timer is stopped") {
  prove("all done: stop from a plain thread, and a deadlock", [] {
    vigil::timer t;
    vigil::runtime rt(until_done(1));
    long_window w;
    std::thread outside;
    const bool reported = reports_deadlock(rt, [&] {
      t = vigil::after_func(1h, [] {});
      vigil::go([] { vigil::sleep_for(std::chrono::hours::max()); });
      w.emplace();
      outside = std::thread([&t] { t.stop(); });
    });
    w.reset();
    outside.join();
    model::require(reported, "the deadlock is reported");
  });
}

// Without a stop limit: waiting for it would be a hang.
TEST_CASE(
    "all done: fibers that wait for locks for ever are unwound as the last timer is stopped") {
  prove("all done: stop from a plain thread, and a deadlock of locks", [] {
    vigil::timer t;
    vigil::options o = until_done(1);
    o.stop_limit = std::chrono::nanoseconds::max();
    vigil::runtime rt(o);
    long_window w;
    std::thread outside;
    const bool reported = reports_deadlock(rt, [&] {
      t = vigil::after_func(1h, [] {});
      vigil::go([] {
        vigil::mutex m;
        const std::lock_guard first(m);
        const std::lock_guard second(m);
      });
      w.emplace();
      outside = std::thread([&t] {
        t.stop();
        t.stop();  // a timer may be there again as the run ends
      });
    });
    w.reset();
    outside.join();
    model::require(reported, "the deadlock is reported");
  });
}
