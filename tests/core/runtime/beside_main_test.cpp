// The main fiber does not wait behind a computation while a worker is idle (P7).
//
// A computation lasts until the main fiber has been seen to run: if that waits behind it,
// the case never ends. Nothing here looks at a clock.
#include "core/runtime/with_workers.hpp"
#include "support/child.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include <doctest/doctest.h>

namespace {

using namespace std::chrono_literals;
using vigil::testing_support::child_result;
using vigil::testing_support::run_child;
using vigil::testing_support::with_workers;

// Computes until end() is called, without a wait in between.
class computation {
 public:
  void run() {
    has_begun_ = true;
    while (!is_over_.load())
      asm volatile("");  // clang drops a loop that nothing can end
  }

  bool has_begun() const { return has_begun_.load(); }

  void end() { is_over_ = true; }

 private:
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> is_over_{false};
};

// `start` starts the computation and does not wait; then main sleeps.
void main_wakes_beside(const std::function<void(computation&)>& start) {
  for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
    for (int round = 0; round < 5; ++round) {
      computation c;
      vigil::run(with_workers(workers), [&] {
        start(c);
        vigil::sleep_for(10ms);
        c.end();
      });
    }
  }
}

// Sends a value there and back, until the other fiber's turns are known to be short.
void take_turns(const vigil::channel<int>& there, const vigil::channel<int>& back) {
  for (int i = 0; i < 200; ++i) {
    there.send(i);
    static_cast<void>(back.recv());
  }
}

// Calls waits(begin) on a main fiber beside another one that has had short turns and
// computes after begin().
template <class F>
void main_waits_beside_short_turns(F waits) {
  for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
    computation c;
    vigil::run(with_workers(workers), [&] {
      const auto there = vigil::make_channel<int>(1);
      const auto back = vigil::make_channel<int>(1);
      vigil::go([&c, there, back] {
        for (int i = 0; i < 200; ++i)
          back.send(there.recv().value_or(0));
        static_cast<void>(there.recv());
        c.run();
      });
      take_turns(there, back);
      waits([&] { there.send(0); });
      c.end();
    });
  }
}

// The same, with a main fiber that waits for a tick.
template <class Wait>
void main_has_its_tick(Wait wait) {
  main_waits_beside_short_turns([&](auto begin) {
    const vigil::ticker beat(5ms);
    begin();
    wait(beat.channel());
  });
}

TEST_SUITE("beside main") {
  TEST_CASE("main wakes from a sleep beside a fiber that computes") {
    main_wakes_beside([](computation& c) { vigil::go([&c] { c.run(); }); });
  }

  TEST_CASE("main wakes from a sleep beside a fiber that computes after waits of its own") {
    main_wakes_beside([](computation& c) {
      vigil::go([&c] {
        for (int i = 0; i < 5; ++i)
          vigil::sleep_for(1ms);
        c.run();
      });
    });
  }

  TEST_CASE("main wakes from a sleep beside a fiber that yields and then computes") {
    main_wakes_beside([](computation& c) {
      vigil::go([&c] {
        for (int i = 0; i < 100; ++i)
          vigil::this_fiber::yield();
        c.run();
      });
    });
  }

  TEST_CASE("main wakes from a sleep beside a callback that computes") {
    main_wakes_beside([](computation& c) { vigil::after_func(1ms, [&c] { c.run(); }); });
  }

  TEST_CASE("main wakes from a sleep beside a tick of every that computes") {
    for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
      for (int round = 0; round < 5; ++round) {
        computation c;
        vigil::run(with_workers(workers), [&] {
          const vigil::timer ticks = vigil::every(1ms, [&c] { c.run(); });
          vigil::sleep_for(10ms);
          c.end();
          ticks.stop();
        });
      }
    }
  }

  TEST_CASE("main wakes from a sleep beside a posted function that computes") {
    main_wakes_beside([](computation& c) { vigil::post([&c] { c.run(); }); });
  }

  TEST_CASE("main wakes from a sleep although the fiber that computes has had short turns") {
    main_waits_beside_short_turns([](auto begin) {
      begin();
      vigil::sleep_for(10ms);
    });
  }

  TEST_CASE("a fiber that computes at once lets main receive its value within a limit") {
    computation c;
    vigil::run(with_workers(2), [&] {
      const auto never = vigil::make_channel<int>();
      vigil::go([&c] { c.run(); });
      CHECK(never.recv_for(10ms).is_timeout());
      c.end();
    });
  }

  TEST_CASE("main hears from outside beside a fiber that computes, without a limit") {
    for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
      computation c;
      const auto news = vigil::make_channel<int>(1);
      std::thread outside;
      vigil::runtime rt(with_workers(workers));
      rt.run([&] {
        const auto outside_work = rt.make_work_guard();
        vigil::go([&c] { c.run(); });
        outside = std::thread([&] {
          while (!c.has_begun())
            std::this_thread::yield();
          news.send(1);
        });
        CHECK(news.recv() == 1);
        c.end();
      });
      outside.join();
    }
  }

  TEST_CASE("main wakes from a sleep beside a fiber that a pinned one has set to compute") {
    computation c;
    vigil::run(with_workers(2), [&] {
      const auto there = vigil::make_channel<int>(1);
      const auto back = vigil::make_channel<int>(1);
      vigil::go([&c, there, back] {
        for (int i = 0; i < 200; ++i)
          back.send(there.recv().value_or(0));
        static_cast<void>(there.recv());
        c.run();
      });
      take_turns(there, back);
      auto last = vigil::spawn([&] {
        const vigil::this_fiber::pin here;
        there.send(0);
      });
      vigil::sleep_for(10ms);
      c.end();
      last.join();
    });
  }

  TEST_CASE("with a pinned fiber on each worker the others run all the same") {
    vigil::run(with_workers(2), [] {
      const vigil::this_fiber::pin here;
      std::atomic<bool> has_begun{false};
      std::atomic<bool> over{false};
      std::atomic<int> ran{0};
      // The other worker takes it: this one is not free meanwhile.
      auto keeper = vigil::spawn([&] {
        const vigil::this_fiber::pin there;
        has_begun = true;
        while (!over.load())
          vigil::sleep_for(100us);
      });
      while (!has_begun.load())
        asm volatile("");
      for (int i = 0; i < 200; ++i) {
        auto done = vigil::make_channel<int>();
        vigil::go([&ran, done] {
          vigil::this_fiber::yield();
          ++ran;
          vigil::sleep_for(10us);
          done.close();
        });
        static_cast<void>(done.recv());
      }
      over = true;
      keeper.join();
      CHECK(ran.load() == 200);
    });
  }

  TEST_CASE("main wakes for a tick although the fiber that computes has had short turns") {
    main_has_its_tick([](const vigil::timer_receiver& ticks) { static_cast<void>(ticks.recv()); });
  }

  TEST_CASE("main wakes for a tick in a select beside a fiber that has had short turns") {
    main_has_its_tick([](const vigil::timer_receiver& ticks) {
      const auto never = vigil::make_channel<int>();
      vigil::select(vigil::on_recv(ticks, [] {}), vigil::on_recv(never, [] {}));
    });
  }

  TEST_CASE("child: is stopped beside an endless computation" * doctest::skip()) {
    static computation without_end;
    auto o = with_workers(4);
    o.stop_limit = 1s;  // main is stopped before
    vigil::runtime rt(o);
    rt.run([&rt] {
      vigil::go([] {
        vigil::this_fiber::set_name("endless");
        without_end.run();
      });
      // A fiber that has not begun by then would be dropped.
      const vigil::timer stop = vigil::after_func(1ms, [&rt] {
        while (!without_end.has_begun())
          vigil::sleep_for(100us);
        rt.request_stop();
      });
      try {
        static_cast<void>(vigil::make_channel<int>().recv());
      } catch (const vigil::stopped&) {
        std::fputs("main was stopped\n", stderr);
        throw;
      }
    });
  }

  TEST_CASE("request_stop beside an endless computation ends main, and the limit names the fiber") {
    const child_result r = run_child("child: is stopped beside an endless computation");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("main was stopped"));
    CHECK(r.says("options::stop_limit"));
    CHECK(r.says("(endless), running"));
  }

  TEST_CASE("a value there and back between main and a fiber wakes nobody") {
    for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
      vigil::run(with_workers(workers), [] {
        constexpr int rounds = 50;
        const auto there = vigil::make_channel<int>();
        const auto back = vigil::make_channel<int>();
        auto other = vigil::spawn([&] {
          for (const int n : there)
            back.send(n);
        });
        const auto before = vigil::stats().wake_calls;
        for (int i = 0; i < rounds; ++i)
          take_turns(there, back);
        // It would be two for each of the 10 000 values if the fiber ran elsewhere.
        CHECK(vigil::stats().wake_calls - before < 5'000);
        there.close();
        other.join();
      });
    }
  }
}

}  // namespace
