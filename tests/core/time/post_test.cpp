// post: when its functions start, and that they starve nobody.
#include "core/time/post_helpers.hpp"

#include <thread>
#include <vector>

using namespace vigil::testing_support;

namespace {

// Posts itself until told to end.
struct endless_post {
  std::shared_ptr<std::atomic<bool>> end;

  void operator()() const {
    if (!*end) vigil::post(endless_post{end});
  }
};

}  // namespace

TEST_SUITE("post") {
  // Node, libuv: setImmediate does not wait for the clock.
  TEST_CASE("runs the function once, later, on a fiber of its own, at no later time") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto me = vigil::this_fiber::id();
      int runs = 0;
      vigil::post([&] {
        ++runs;
        CHECK(vigil::this_fiber::id() != me);
        CHECK(vigil::clock::now() == start);
      });
      CHECK(runs == 0);
      vigil::testing::settle();
      CHECK(runs == 1);
      CHECK(since(start) == 0ns);
    });
  }

  // One worker: nothing else runs before the main fiber waits.
  // Node, libuv: callback_stack.
  TEST_CASE("no call of vigil's runs due functions: post, defer, add, touch, remove, stop, reset") {
    in_runtime({.workers = {1}, .settings = {}}, [] {
      int calls = 0;
      int expired = 0;
      vigil::timeout_list list(1ns, [&](vigil::timeout_list::entry&) { ++expired; });
      vigil::timeout_list::entry e;
      const auto count = [&] { ++calls; };
      const auto timer = vigil::after_func(0s, count);
      vigil::post(count);
      vigil::defer(count);
      list.add(e);
      const auto start = vigil::clock::now();
      while (since(start) < 10us) {
      }
      e.touch();
      list.add(e);
      CHECK(vigil::timeout_list::remove(e));
      list.add(e);
      timer.reset(0s);
      CHECK(timer.stop());
      timer.reset(0s);
      CHECK(calls == 0);
      CHECK(expired == 0);
      while (calls < 3 || expired == 0)
        vigil::sleep_for(100us);
      CHECK(calls == 3);
      CHECK(expired == 1);
    });
  }

  // Node, libuv: setTimeout(0) against setImmediate is open.
  TEST_CASE("functions start in the order of posting") {
    for_each_seed(10, [] {
      std::vector<int> order;
      for (int i = 0; i < 200; ++i)
        vigil::post([&order, i] { order.push_back(i); });
      vigil::testing::settle();
      REQUIRE(order.size() == 200);
      for (int i = 0; i < 200; ++i)
        CHECK(order[static_cast<std::size_t>(i)] == i);
    });
  }

  // Node, libuv: setImmediate: a round runs what was there at its start
  // (test-timers-immediate-queue).
  TEST_CASE("a round has the functions present at its start: a thousand that each add one") {
    for_each_seed(5, [] {
      int first = 0;
      int second = 0;
      for (int i = 0; i < 1000; ++i) {
        vigil::post([&] {
          CHECK(second == 0);
          ++first;
          vigil::post([&] {
            CHECK(first == 1000);
            ++second;
          });
        });
      }
      vigil::testing::settle();
      CHECK(first == 1000);
      CHECK(second == 1000);
    });
  }

  // Node, libuv: recursive setImmediate lets others through; recursive nextTick
  // starves them.
  TEST_CASE("between two rounds ready fibers and due timers get their turns") {
    in_runtime({.workers = {1}}, [] {
      auto end = std::make_shared<std::atomic<bool>>(false);
      // A chain of rounds of one function each; 32 rounds in one turn of a runner would
      // be 32 for each yield.
      auto rounds_run = std::make_shared<int>(0);
      struct chain {
        std::shared_ptr<std::atomic<bool>> end;
        std::shared_ptr<int> n;
        void operator()() const {
          ++*n;
          if (!*end) vigil::post(chain{end, n});
        }
      };
      vigil::post(chain{end, rounds_run});
      for (int i = 0; i < 300; ++i)
        vigil::this_fiber::yield();
      CHECK(*rounds_run >= 1);
      CHECK(*rounds_run <= 3 * 300);
      *end = true;
    });
  }

  // Node, libuv: recursive setImmediate lets others through; recursive nextTick
  // starves them.
  TEST_CASE("an endless chain starves neither timers nor fibers nor other posts") {
    in_runtime({.workers = {1, 2}}, [] {
      auto end = std::make_shared<std::atomic<bool>>(false);
      vigil::post(endless_post{end});
      vigil::post(endless_post{end});
      for (int i = 0; i < 5; ++i)
        vigil::sleep_for(1ms);
      check_others_have_their_turn();
      *end = true;
    });
  }

  TEST_CASE("a function that parks holds up no other") {
    for_each_seed(5, [] {
      int ended = 0;
      vigil::post([&] {
        vigil::sleep_for(1h);
        ++ended;
      });
      vigil::post([&] { ++ended; });
      vigil::testing::settle();
      CHECK(ended == 1);
      vigil::sleep_for(1h);
      vigil::testing::settle();
      CHECK(ended == 2);
    });
  }

  // Node, libuv: sends of one async handle merge (libuv#1460).
  TEST_CASE("of many posted by plain threads each one runs, none is merged") {
    for (const unsigned workers : {1u, 2u, 4u}) {
      std::atomic<int> ran{0};
      const int each = rounds(5000);
      vigil::options o = all_done();
      o.workers = workers;
      vigil::runtime rt(o);
      std::vector<std::thread> threads;
      rt.run([&] {
        for (int t = 0; t < 3; ++t) {
          threads.emplace_back([&, guard = rt.make_work_guard()] {
            for (int i = 0; i < each; ++i)
              rt.post([&ran] { ++ran; });
          });
        }
      });
      for (auto& t : threads)
        t.join();
      CHECK(ran.load() == 3 * each);
    }
  }

  TEST_CASE("before a run waits for it") {
    vigil::runtime rt(all_done());
    bool ran = false;
    rt.post([&ran] { ran = true; });
    CHECK_FALSE(ran);
    rt.run([] {});
    CHECK(ran);
  }

  TEST_CASE("holds a program that ends when all is done, link by link") {
    const int links = rounds(100'000);
    for (const unsigned workers : {1u, 2u}) {
      int left = links;

      struct link {
        int& left;

        void operator()() const {
          if (--left > 0) vigil::post(link{left});
        }
      };

      vigil::options o = all_done();
      o.workers = workers;
      vigil::run(o, [&] { vigil::post(link{left}); });
      CHECK(left == 0);
    }
  }

  TEST_CASE("one not started when the run ends never starts, and its captures are destroyed") {
    auto token = std::make_shared<int>(0);
    vigil::testing::run_virtual([token] { vigil::post([token] { FAIL("runs"); }); });
    CHECK(token.use_count() == 1);
    vigil::runtime rt;
    rt.run([] {});
    rt.post([token] {});
    CHECK(token.use_count() == 2);
  }

  TEST_CASE("an exception goes to on_unhandled, and the others go on") {
    static std::atomic<int> unhandled;
    unhandled = 0;
    real_options how;
    how.settings.on_unhandled = [](std::exception_ptr) { ++unhandled; };
    in_runtime(how, [] {
      unhandled = 0;
      auto done = vigil::make_channel<int>(1);
      vigil::post([] { throw std::runtime_error("x"); });
      vigil::defer([] { throw std::runtime_error("y"); });
      vigil::post([done] { done.send(1); });
      done.recv();
      while (unhandled.load() < 2)
        vigil::this_fiber::yield();
    });
  }

  TEST_CASE("an empty function and a thread without a runtime are refused") {
    void (*none)() = nullptr;
    CHECK_THROWS_WITH_AS(
        vigil::post([] {}), doctest::Contains("runtime::post"), vigil::wrong_place);
    CHECK_THROWS_WITH_AS(
        vigil::defer([] {}), doctest::Contains("runtime::post"), vigil::wrong_place);
    in_virtual([none] {
      CHECK_THROWS_AS(vigil::post(none), std::invalid_argument);
      CHECK_THROWS_AS(vigil::defer(none), std::invalid_argument);
    });
  }
}
