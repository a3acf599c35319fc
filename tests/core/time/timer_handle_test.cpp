#include "core/time/time_test.hpp"

#include <string>

namespace {

using namespace vigil::testing_support;
using vigil::after_func;
using vigil::scoped_timer;

bool contains(const char* text, const char* part) {
  return std::string_view(text).find(part) != std::string_view::npos;
}

}  // namespace

TEST_SUITE("timer handles") {
  TEST_CASE("copies name the same timer and the same channel") {
    in_virtual([] {
      timer a(1s);
      timer b = a;
      CHECK(a.channel() == b.channel());
      CHECK(a.channel() == a.channel());
      CHECK_FALSE(a.channel() == timer(1s).channel());
      CHECK(b.stop());
      CHECK_FALSE(a.stop());
      CHECK_FALSE(a.reset(1s));
      CHECK(b.channel().recv().has_value());
      CHECK_FALSE(b.stop());
    });
  }

  // Go: TestZeroTimerResetPanics, -StopPanics; TestTickerStopWithDirectInitialization,
  // TestManualTicker.
  TEST_CASE("an empty or moved-from one stops nothing, refuses reset and has a nil channel") {
    in_virtual([] {
      timer t(1s);
      timer moved = std::move(t);
      ticker k(1s);
      const ticker moved_ticker = std::move(k);
      timer none;
      ticker no_ticker;
      // NOLINTBEGIN(bugprone-use-after-move): the move is what is tested
      for (timer* empty : {&none, &t}) {
        CHECK_FALSE(static_cast<bool>(*empty));
        CHECK_FALSE(empty->stop());
        CHECK_FALSE(empty->stop_and_wait());
        CHECK_THROWS_AS(empty->reset(1s), std::logic_error);
        CHECK_THROWS_AS(empty->reset(vigil::clock::now()), std::logic_error);
        CHECK_FALSE(static_cast<bool>(empty->channel()));
        CHECK_FALSE(empty->channel().try_recv());
        empty->set_slack(1s);
      }
      for (ticker* empty : {&no_ticker, &k}) {
        CHECK_FALSE(static_cast<bool>(*empty));
        CHECK_FALSE(empty->stop());
        CHECK_THROWS_AS(empty->reset(1s), std::logic_error);
        CHECK_THROWS_AS(empty->reset(1s, 1s), std::logic_error);
        CHECK_FALSE(static_cast<bool>(empty->channel()));
        CHECK(empty->deadline() == no_deadline);
        CHECK(empty->missed() == 0);
        empty->set_slack(1s);
      }
      // NOLINTEND(bugprone-use-after-move)
      CHECK(moved.stop());
      CHECK(static_cast<bool>(moved_ticker));
    });
  }

  TEST_CASE("that of a callback has a nil channel, and one of a channel waits for no callback") {
    in_virtual([] {
      timer call = after_func(1s, [] {});
      CHECK_FALSE(static_cast<bool>(call.channel()));
      CHECK(call.channel().recv_for(10s).is_timeout());
      timer t(1s);
      CHECK(t.stop_and_wait());
      CHECK_FALSE(t.stop_and_wait());
    });
  }

  TEST_CASE("one with a channel never keeps a program alive by itself") {
    in_virtual([] {
      timer t(1s);
      CHECK_FALSE(t.has_ref());
      t.ref();
      CHECK_FALSE(t.has_ref());
      t.unref();
    });
  }

  // Go: unreferenced running timer.
  TEST_CASE("a receive from the channel of a temporary ends") {
    for_each_seed(5, [] {
      const auto start = vigil::clock::now();
      CHECK(timer(1s).channel().recv() == start + 1s);
      CHECK(ticker(1s).channel().recv() == start + 2s);
      CHECK(after(1s).recv() == start + 3s);
      CHECK(vigil::tick(1s).recv() == start + 4s);
      CHECK(vigil::select(on_recv(timer(1s).channel()), on_recv(ticker(2s).channel())) == 0);
      CHECK(since(start) == 5s);
    });
  }

  // Go: unreferenced running timer.
  TEST_CASE("dropping the last one while a fiber waits takes nothing from the fiber") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      auto t = std::make_unique<timer>(2s);
      waiting w(t->channel());
      settle();
      t.reset();
      sleep_for(1s);
      CHECK_FALSE(w.is_done);
      w.fiber.join();
      CHECK(w.value == start + 2s);
    });
  }

  // Go: TestTimerFromInsideBubble.
  TEST_CASE("one that outlives its runtime stops nothing and says so on reset") {
    timer untouched;
    timer stopped;
    timer received;
    timer waited;
    ticker ticks;
    timer_receiver late;
    in_virtual([&] {
      untouched = timer(1h);
      stopped = timer(1h);
      stopped.stop();
      received = timer(0s);
      received.channel().recv();
      waited = timer(1h);
      vigil::go([&] { waited.channel().recv(); });
      ticks = ticker(1s);
      late = after(1s);
      sleep_for(10s);
    });
    for (timer* t : {&untouched, &stopped, &received, &waited}) {
      CHECK_FALSE(t->stop());
      CHECK_FALSE(t->stop_and_wait());
      CHECK_THROWS_AS(t->reset(1s), vigil::runtime_gone);
      CHECK_THROWS_AS(t->reset(0s), vigil::runtime_gone);
      CHECK_THROWS_AS(t->reset(no_deadline), vigil::runtime_gone);
      CHECK(t->deadline() == no_deadline);
      CHECK(t->remaining() == nanoseconds::max());
      CHECK_FALSE(t->channel().try_recv());
    }
    CHECK_FALSE(ticks.stop());
    CHECK_THROWS_AS(ticks.reset(1s), vigil::runtime_gone);
    CHECK(ticks.deadline() == no_deadline);
    CHECK_FALSE(ticks.channel().try_recv());
    CHECK_FALSE(late.try_recv());
  }

  // Go: TestTimerFromInsideBubble.
  TEST_CASE("one of a runtime that has gone arms nothing in the next one: its channel is closed") {
    timer old;
    timer_receiver never_waited;
    ticker old_ticker;
    in_virtual([&] {
      old = timer(1h);
      waiting w(old.channel());
      settle();
      never_waited = after(1h);
      old_ticker = ticker(1s);
      w.leave();
    });
    in_virtual([&] {
      const auto armed = vigil::stats().timers_armed;
      CHECK_FALSE(old.stop());
      CHECK_THROWS_AS(old.reset(1ms), vigil::runtime_gone);
      CHECK(old.channel().recv_for(2h).is_closed());
      CHECK_FALSE(never_waited.recv().has_value());
      CHECK_FALSE(old_ticker.channel().recv().has_value());
      bool told = false;
      const auto closed = [&](std::optional<instant> v) { told = !v.has_value(); };
      CHECK(vigil::select(on_timeout(2h), on_recv(never_waited, closed)) == 1);
      CHECK(told);
      CHECK(vigil::stats().timers_armed == armed);
    });
    // The same without any runtime.
    CHECK_FALSE(old.channel().recv().has_value());
    CHECK(never_waited.recv_for(1h).is_closed());
  }

  TEST_CASE("a thread without a runtime gets an error that gives the alternative") {
    const auto text_of = [](auto make) {
      try {
        make();
      } catch (const vigil::wrong_place& e) {
        return std::string(e.what());
      }
      return std::string();
    };
    const std::string of_timer = text_of([] { timer t(1s); });
    const std::string of_point = text_of([] { timer t(vigil::clock::now()); });
    const std::string of_ticker = text_of([] { ticker t(1s); });
    const std::string of_after = text_of([] { static_cast<void>(after(1s)); });
    const std::string of_tick = text_of([] { static_cast<void>(vigil::tick(1s)); });
    CHECK(contains(of_timer.c_str(), "vigil::timer:"));
    CHECK(contains(of_point.c_str(), "vigil::timer:"));
    CHECK(contains(of_ticker.c_str(), "vigil::ticker:"));
    CHECK(contains(of_after.c_str(), "vigil::after:"));
    CHECK(contains(of_tick.c_str(), "vigil::tick:"));
    for (const std::string& text : {of_timer, of_point, of_ticker, of_after, of_tick}) {
      CHECK(contains(text.c_str(), "no runtime"));
      CHECK(contains(text.c_str(), "on a fiber"));
      CHECK(contains(text.c_str(), "runtime::after_func"));
    }
    CHECK_FALSE(static_cast<bool>(vigil::tick(0s)));
  }
}

TEST_SUITE("scoped_timer") {
  // Node, libuv: disposal at the end of a scope.
  TEST_CASE("stops a pending timer at the end of its scope") {
    in_virtual([] {
      int runs = 0;
      timer copy;
      timer waited;
      {
        const scoped_timer call = after_func(1s, [&] { ++runs; });
        const scoped_timer repeating = vigil::every(1s, [&] { ++runs; });
        waited = timer(1s);
        const scoped_timer channel = waited;
        copy = call.get();
      }
      CHECK_FALSE(copy.stop());
      CHECK_FALSE(waited.stop());
      sleep_for(10s);
      CHECK(runs == 0);
      CHECK_FALSE(waited.channel().try_recv());
      CHECK_FALSE(copy.reset(1s));  // another handle can start it again
      sleep_for(2s);
      CHECK(runs == 1);
    });
  }

  TEST_CASE("its destructor waits for a callback that is running") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      bool in_scope = true;
      {
        const scoped_timer t = after_func(1s, [&] {
          sleep_for(5s);
          CHECK(in_scope);
        });
        sleep_for(2s);
      }
      in_scope = false;
      CHECK(since(start) == 6s);
    });
  }

  TEST_CASE("inside its own callback the destructor does not wait") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      auto t = std::make_shared<scoped_timer>();
      bool ended = false;
      *t = after_func(1s, [&ended, &t] {
        t.reset();  // the last handle
        sleep_for(1s);
        ended = true;
      });
      sleep_for(5s);
      CHECK(ended);
      CHECK(t == nullptr);
      CHECK(since(start) == 5s);
    });
  }

  TEST_CASE("of every it ends the repetition after the run under way") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      int begun = 0;
      int ended = 0;
      {
        const scoped_timer t = vigil::every(1s, [&] {
          ++begun;
          sleep_for(700ms);
          ++ended;
        });
        sleep_for(3s + 100ms);
      }
      CHECK(since(start) == 3s + 700ms);
      CHECK(begun == 3);
      CHECK(ended == 3);
      sleep_for(10s);
      CHECK(begun == 3);
    });
  }

  TEST_CASE("a stop of the fiber does not cut the wait short") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      bool callback_ended = false;
      auto f = vigil::spawn([&] {
        bool in_scope = true;
        {
          const scoped_timer t = after_func(1s, [&] {
            sleep_for(5s);
            CHECK(in_scope);
            callback_ended = true;
          });
          sleep_for(1h);
        }
        in_scope = false;
      });
      sleep_for(2s);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(callback_ended);
      CHECK(since(start) == 6s);
    });
  }

  TEST_CASE("nor does a stop that the fiber has caught and forgotten") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      auto f = vigil::spawn([&] {
        bool callback_ended = false;
        {
          const scoped_timer t = after_func(1s, [&] {
            sleep_for(5s);
            callback_ended = true;
          });
          try {
            sleep_for(1h);
          } catch (const vigil::stopped&) {
          }
        }
        CHECK(callback_ended);
        CHECK(since(start) == 6s);
      });
      sleep_for(2s);
      f.request_stop();
      f.join();
    });
  }

  TEST_CASE("in the shutdown the scope outlives the callback that refers to it") {
    for_each_seed(30, [] {
      struct scope {
        ~scope() { alive = false; }
        bool alive = true;
        int touched = 0;
      };
      struct toucher {
        ~toucher() {
          CHECK(of.alive);
          ++of.touched;
        }
        scope& of;
      };
      for (int i = 0; i < 3; ++i) {
        vigil::go([] {
          scope own;
          const scoped_timer t = after_func(1s, [&own] {
            const toucher at_the_end{own};
            sleep_for(1h);
          });
          sleep_for(1h);
        });
      }
      sleep_for(2s);  // then main returns, and all of them are unwound
    });
  }

  TEST_CASE("assignment ends the timer that it held, release gives it away unstopped") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      std::string log;
      scoped_timer t = after_func(1s, [&] { log += 'a'; });
      t = after_func(2s, [&] {
        sleep_for(3s);
        log += 'b';
      });
      sleep_for(3s);
      CHECK(log.empty());
      t = scoped_timer(after_func(1h, [&] { log += 'c'; }));  // waits for the running callback
      CHECK(log == "b");
      CHECK(since(start) == 5s);
      t->reset(2s);
      CHECK((*t).remaining() == 2s);
      CHECK(t.get().remaining() == 2s);
      {
        scoped_timer given = std::move(t);
        const timer kept = given.release();
        CHECK(kept.remaining() == 2s);
      }
      sleep_for(2s + 1ns);
      CHECK(log == "bc");
      scoped_timer& same = t;
      t = std::move(same);
      const scoped_timer none;
      CHECK_FALSE(static_cast<bool>(none.get()));
    });
  }
}
