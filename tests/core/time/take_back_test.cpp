// post and defer with `stoppable`: functions that are taken back before they begin.
#include "core/time/post_helpers.hpp"

#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using namespace vigil::testing_support;
using vigil::stoppable;

static_assert(std::is_void_v<decltype(vigil::post([] {}))>, "the plain forms return nothing");
static_assert(std::is_void_v<decltype(vigil::defer([] {}))>, "the plain forms return nothing");

namespace {

// Calls f with post and with defer, as functions that take a callback and return its
// timer.
template <class F>
void with_both(F f) {
  for_each_seed(5, [&] {
    f([](auto g) { return vigil::post(std::move(g), stoppable); });
    f([](auto g) { return vigil::defer(std::move(g), stoppable); });
  });
}

// Starts and stops functions at the same time; each one runs or is taken back.
template <class Start>
void race(Start start) {
  in_runtime({.workers = {1, 2, 4}}, [&](vigil::runtime& rt) {
    const auto announced = rt.make_work_guard();
    std::atomic<int> ran{0};
    std::atomic<int> alive{0};
    int taken_back = 0;
    const int most = rounds(20'000);
    int n = 0;
    auto timers = vigil::make_channel<timer>();
    auto answers = vigil::make_channel<bool>();
    std::thread other([&] {
      while (auto t = timers.recv())
        answers.send(t->stop());
    });
    repeat(most, [&](int i) {
      ++n;
      ++alive;
      auto token = std::shared_ptr<int>(new int(0), [&alive](const int* p) {
        delete p;
        --alive;
      });
      start([&ran, token = std::move(token)] { ++ran; },
            [&](timer t) {
              timers.send(std::move(t));
              if (i % 3 == 0) vigil::this_fiber::yield();
              if (*answers.recv()) ++taken_back;
            });
    });
    timers.close();
    other.join();
    while (ran.load() + taken_back < n || alive.load() != 0)
      vigil::this_fiber::yield();
    CHECK(ran.load() + taken_back == n);
  });
}

}  // namespace

TEST_SUITE("taking back") {
  // Node, libuv: clearImmediate of one that has not run.
  TEST_CASE("a function that has not begun never does, and its captures go with the handle") {
    with_both([](auto start) {
      auto token = std::make_shared<int>(0);
      {
        const timer t = start([token] { ++*token; });
        CHECK(t.has_ref());
        CHECK(t.remaining() == 0ns);
        CHECK(t.stop());
        CHECK_FALSE(t.stop());
        CHECK(t.deadline() == vigil::clock::time_point::max());
        settle();
        CHECK(*token == 0);
        CHECK(token.use_count() == 2);
      }
      CHECK(token.use_count() == 1);
    });
  }

  TEST_CASE("with its handle gone at once it runs like any other") {
    with_both([](auto start) {
      int runs = 0;
      start([&runs] { ++runs; });
      settle();
      CHECK(runs == 1);
    });
  }

  // Node, libuv: clearImmediate inside its own callback, and afterwards
  // (test-timers-clearImmediate).
  TEST_CASE("in the function, and after it, there is nothing to take back") {
    with_both([](auto start) {
      int runs = 0;
      timer t;
      t = start([&runs, &t] {
        ++runs;
        CHECK_FALSE(t.stop());
      });
      settle();
      CHECK_FALSE(t.stop());
      CHECK(runs == 1);
    });
  }

  // Node, libuv: an immediate clears a later one of the same round.
  TEST_CASE("a function takes back a later one of its round, and the others keep their order") {
    with_both([](auto start) {
      std::string order;
      std::vector<timer> all;
      for (const char letter : {'a', 'b', 'c', 'd'}) {
        all.push_back(start([&order, &all, letter] {
          order += letter;
          if (letter == 'a') CHECK(all[2].stop());
          if (letter == 'b') CHECK_FALSE(all[0].stop());
        }));
      }
      settle();
      CHECK(order == "abd");
    });
  }

  TEST_CASE("a round without the functions that were taken back is over as soon") {
    for_each_seed(5, [] {
      std::string order;
      const timer t = vigil::post([&order] { order += 'x'; }, stoppable);
      vigil::post([&order] {
        order += '1';
        vigil::post([&order] { order += '3'; });
      });
      vigil::post([&order] { order += '2'; });
      CHECK(t.stop());
      settle();
      CHECK(order == "123");
    });
  }

  TEST_CASE("a deferred function is taken back by the rest of the stretch, before it is queued") {
    for_each_seed(5, [] {
      std::string order;
      vigil::after_func(1s, [&order] {
        const timer first = vigil::defer([&order] { order += '1'; }, stoppable);
        vigil::defer([&order] { order += '2'; });
        CHECK(first.stop());
        order += 'c';
      });
      vigil::sleep_for(2s);
      CHECK(order == "c2");
    });
  }

  TEST_CASE("the timer may be reset: the function runs once, then") {
    with_both([](auto start) {
      const auto begin = vigil::clock::now();
      std::vector<std::chrono::nanoseconds> at;
      const timer t = start([&at, begin] { at.push_back(since(begin)); });
      CHECK(t.reset(1s));
      settle();
      CHECK(at.empty());
      vigil::sleep_for(2s);
      CHECK(at == std::vector<std::chrono::nanoseconds>{1s});
      const timer later = start([&at, begin] { at.push_back(since(begin)); });
      CHECK(later.stop());
      CHECK_FALSE(later.reset(0s));
      settle();
      CHECK(at == std::vector<std::chrono::nanoseconds>{1s, 2s});
    });
  }

  TEST_CASE("a scoped_timer takes it back at the end of the scope") {
    with_both([](auto start) {
      {
        int local = 0;
        const vigil::scoped_timer t = start([&local] { ++local; });
      }
      settle();
    });
  }

  TEST_CASE("one that is taken back no longer holds a program that ends when all is done") {
    for (const unsigned workers : {1u, 2u}) {
      vigil::options o = all_done();
      o.workers = workers;
      for (int i = 0; i < rounds(200); ++i) {
        std::atomic<int> runs{0};
        timer posted;
        timer deferred;
        std::thread other;
        vigil::run(o, [&] {
          posted = vigil::post([&runs] { ++runs; }, stoppable);
          deferred = vigil::defer([&runs] { ++runs; }, stoppable);
          other = std::thread([&] {
            if (posted.stop()) ++runs;
            if (deferred.stop()) ++runs;
          });
        });
        other.join();
        CHECK(runs.load() == 2);
      }
    }
  }

  // Node, libuv: immediate.unref (test-timers-immediate-unref).
  TEST_CASE("one without a reference does not hold it") {
    int runs = 0;
    vigil::testing::virtual_options how;
    how.runtime.exit = vigil::exit_when::all_done;
    in_virtual(how, [&runs] {
      const timer t = vigil::post([&runs] { ++runs; }, stoppable);
      t.unref();
      CHECK_FALSE(t.has_ref());
    });
    CHECK(runs == 0);
  }

  TEST_CASE("posted from a plain thread it is taken back before a run, or outlives the runtime") {
    timer left;
    int runs = 0;
    {
      vigil::runtime rt(all_done());
      const timer t = rt.post([&runs] { ++runs; }, stoppable);
      left = rt.post([&runs] { runs += 10; }, stoppable);
      CHECK(t.stop());
      rt.run([] {});
      CHECK(runs == 10);
      CHECK_FALSE(left.stop());
      left = rt.post([&runs] { runs += 100; }, stoppable);
    }
    CHECK_FALSE(left.stop());
    CHECK_THROWS_AS(left.reset(1s), vigil::runtime_gone);
    CHECK(runs == 10);
  }

  TEST_CASE("an empty function and a thread without a runtime are refused") {
    void (*none)() = nullptr;
    CHECK_THROWS_AS(vigil::post([] {}, stoppable), vigil::wrong_place);
    CHECK_THROWS_AS(vigil::defer([] {}, stoppable), vigil::wrong_place);
    in_virtual([none] {
      CHECK_THROWS_AS(vigil::post(none, stoppable), std::invalid_argument);
      CHECK_THROWS_AS(vigil::defer(none, stoppable), std::invalid_argument);
    });
  }

  TEST_CASE("against a plain thread that takes it back, a posted function runs or does not") {
    race([](auto f, auto meanwhile) { meanwhile(vigil::post(std::move(f), stoppable)); });
  }

  TEST_CASE("against a plain thread that takes it back, a deferred function runs or does not") {
    race([](auto f, auto meanwhile) { meanwhile(vigil::defer(std::move(f), stoppable)); });
  }
}
