// Groups: fibers that end together (Go's errgroup).
#include "cancel/failure.hpp"
#include "support/in_runtime.hpp"

#include <vigil/group.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::background;
using vigil::cancelled;
using vigil::context;
using vigil::group;
using vigil::group_of;
using vigil::sleep_for;
using vigil::with_cancel;
using vigil::with_timeout;
using vigil::testing::settle;
using clock = vigil::clock;

int number_thrown_by(group& g) {
  try {
    g.wait();
  } catch (const failure& f) {
    return f.number;
  }
  return 0;
}

}  // namespace

TEST_SUITE("group") {
  TEST_CASE("wait returns when all of its fibers have ended") {
    in_virtual([] {
      const auto start = clock::now();
      group g;
      int ended = 0;
      for (int i = 1; i <= 3; ++i) {
        g.go([&ended, i] {
          sleep_for(i * 1s);
          ++ended;
        });
      }
      g.wait();
      CHECK(ended == 3);
      CHECK(since(start) == 3s);
      CHECK(g.context().is_done());
      g.wait();
    });
  }

  TEST_CASE("an empty one waits for nothing") {
    in_virtual([] {
      group g;
      g.wait();
      const group unused;
    });
  }

  TEST_CASE("the first error cancels the context, stops the others, and comes out of wait") {
    in_virtual([] {
      const auto start = clock::now();
      group g;
      std::vector<std::string> ends;
      g.go([&](const context& ctx) {
        try {
          sleep_for(1h, ctx);
        } catch (const cancelled& c) {
          ends.emplace_back("cancelled");
          CHECK_THROWS_AS(std::rethrow_exception(c.cause()), failure);
          throw;
        } catch (const vigil::stopped&) {
          ends.emplace_back("cancelled");
          throw;
        }
      });
      g.go([&] {
        try {
          sleep_for(1h);
        } catch (const vigil::stopped&) {
          ends.emplace_back("stopped");
          throw;
        }
      });
      g.go([] {
        sleep_for(1s);
        throw failure{1};
      });
      g.go([] {
        sleep_for(1s + 1ns);
        throw failure{2};
      });
      CHECK(number_thrown_by(g) == 1);
      CHECK(since(start) == 1s);
      std::sort(ends.begin(), ends.end());
      CHECK(ends == std::vector<std::string>{"cancelled", "stopped"});
      CHECK(g.context().error() == std::errc::operation_canceled);
      CHECK(number_thrown_by(g) == 1);
    });
  }

  TEST_CASE("a parent that ends ends it: its fibers see it by their context, wait throws it") {
    in_virtual([] {
      const auto start = clock::now();
      auto parent = with_timeout(background(), 1s);
      group g(parent.ctx);
      g.go([](const context& ctx) { sleep_for(1h, ctx); });
      try {
        g.wait();
        FAIL("no error");
      } catch (const cancelled& c) {
        CHECK(c.code() == std::errc::timed_out);
      }
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("after cancel neither a stop nor the context's end is an error, whatever its cause") {
    in_virtual([] {
      for (const bool has_cause : {false, true}) {
        group g;
        g.go([] { sleep_for(1h); });
        g.go([](const context& ctx) { sleep_for(1h, ctx); });
        g.go([](const context& ctx) { sleep_for(1h, with_timeout(ctx, 2h).ctx); });
        settle();
        g.cancel(has_cause ? std::make_exception_ptr(failure{1}) : nullptr);
        g.wait();
        CHECK(g.context().is_done());
      }
    });
  }

  TEST_CASE("after cancel other errors are errors, and so is the context's end before it") {
    in_virtual([] {
      group fails;
      fails.go([](const context& ctx) {
        try {
          sleep_for(1h, ctx);
        } catch (const cancelled&) {
          throw failure{3};
        }
      });
      group other;
      other.go([](const context& ctx) {
        const vigil::this_fiber::shield s;
        const auto its_own = with_timeout(background(), 1s);
        try {
          sleep_for(1h, ctx);
        } catch (const cancelled&) {
          sleep_for(1h, its_own.ctx);
        }
      });
      auto parent = with_cancel(background());
      group below(parent.ctx);
      below.go([](const context& ctx) { sleep_for(1h, ctx); });
      settle();
      fails.cancel();
      CHECK(number_thrown_by(fails) == 3);
      other.cancel();
      CHECK_THROWS_AS(other.wait(), cancelled);
      parent.cancel();
      below.cancel();
      CHECK_THROWS_AS(below.wait(), cancelled);
    });
  }

  TEST_CASE("what is started when the context is done is dropped, and wait says so") {
    in_virtual([] {
      auto parent = with_cancel(background());
      group g(parent.ctx);
      parent.cancel(failure{7});
      auto shared = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = shared;
      bool ran = false;
      g.go([&ran, p = std::move(shared)] { ran = true; });
      CHECK(watch.expired());
      CHECK_FALSE(g.try_go([&] { ran = true; }));
      CHECK(number_thrown_by(g) == 7);
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("go after wait is refused, and the text says what to do") {
    in_virtual([] {
      group g;
      g.wait();
      try {
        g.go([] {});
        FAIL("not refused");
      } catch (const std::logic_error& e) {
        CHECK(std::string(e.what()).find("make another group") != std::string::npos);
      }
    });
  }

  TEST_CASE("never more run than its limit, first come, first served") {
    for_each_seed(10, [] {
      const auto start = clock::now();
      group g(group::options{.limit = 3});
      int running = 0;
      int most = 0;
      std::vector<int> order;
      // No two end at the same moment, so the places come back one by one.
      const auto work = [&](int i) {
        order.push_back(i);
        most = std::max(most, ++running);
        sleep_for(1s + i * 1ms);
        --running;
      };
      std::vector<vigil::fiber<>> callers;
      for (int i = 0; i < 9; ++i) {
        callers.push_back(vigil::spawn([&, i] { g.go([&, i] { work(i); }); }));
        settle();
      }
      CHECK(order == std::vector<int>{0, 1, 2});
      for (auto& caller : callers)
        caller.join();
      CHECK(since(start) == 2s + 7ms);
      g.wait();
      CHECK(since(start) == 3s + 15ms);
      CHECK(most == 3);
      CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8});
    });
  }

  TEST_CASE("try_go says no when the limit is reached, with the function untouched") {
    in_virtual([] {
      group g(group::options{.limit = 1});
      CHECK(g.try_go([] { sleep_for(1s); }));
      auto value = std::make_unique<int>(7);
      auto f = [p = std::move(value)] { CHECK(*p == 7); };
      CHECK_FALSE(g.try_go(std::move(f)));
      sleep_for(2s);
      CHECK(g.try_go(std::move(f)));
      g.wait();
    });
  }

  TEST_CASE("go that waits for a place ends when the group fails, and starts nothing") {
    in_virtual([] {
      group g(group::options{.limit = 1});
      g.go([] {
        sleep_for(1s);
        throw failure{1};
      });
      bool ran = false;
      const auto start = clock::now();
      g.go([&] { ran = true; });
      CHECK(since(start) == 1s);
      CHECK(number_thrown_by(g) == 1);
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("go that waits for a place ends when the context does, whoever has the place") {
    in_virtual([] {
      const auto start = clock::now();
      auto parent = with_cancel(background());
      group g(parent.ctx, {.limit = 1});
      g.go([] {
        const vigil::this_fiber::shield s;
        sleep_for(1h);
      });
      static_cast<void>(vigil::after_func(1s, [&] { parent.cancel(failure{7}); }));
      auto shared = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = shared;
      bool ran = false;
      g.go([&ran, p = std::move(shared)] { ran = true; });
      CHECK(since(start) == 1s);
      CHECK(watch.expired());
      CHECK(number_thrown_by(g) == 7);
      CHECK(since(start) == 1h);
      CHECK_FALSE(ran);
    });
  }

  TEST_CASE("go that waits for a place ends at the context's deadline") {
    in_virtual([] {
      const auto start = clock::now();
      group g(with_timeout(background(), 1s).ctx, {.limit = 1});
      g.go([] {
        const vigil::this_fiber::shield s;
        sleep_for(2s);
      });
      g.go([] {});
      CHECK(since(start) == 1s);
      try {
        g.wait();
        FAIL("no error");
      } catch (const cancelled& c) {
        CHECK(c.code() == std::errc::timed_out);
      }
    });
  }

  TEST_CASE("go that waits for a place ends by a stop, and the place is not lost") {
    in_virtual([] {
      group g(group::options{.limit = 1});
      g.go([] { sleep_for(1s); });
      auto other = vigil::spawn([&] { g.go([] {}); });
      settle();
      other.request_stop();
      CHECK_THROWS_AS(other.join(), cancelled);
      int ran = 0;
      g.go([&] { ++ran; });
      g.wait();
      CHECK(ran == 1);
    });
  }

  TEST_CASE("a cancel asks each of many to stop") {
    for_each_seed(3, [] {
      const auto start = clock::now();
      group g;
      int stopped = 0;
      for (int i = 0; i < 300; ++i) {
        g.go([&] {
          try {
            sleep_for(1h);  // not under the context
          } catch (const vigil::stopped&) {
            ++stopped;
            throw;
          }
        });
      }
      settle();
      g.cancel();
      g.cancel();
      g.wait();
      CHECK(stopped == 300);
      CHECK(since(start) == 0s);
    });
  }

  TEST_CASE("its end cancels, asks to stop and joins, also when the scope is unwound") {
    in_virtual([] {
      int local = 0;
      try {
        group g;
        g.go([&local] {
          struct at_end {
            int& n;

            ~at_end() { n = 7; }
          } const mark{local};

          const vigil::this_fiber::shield s;
          sleep_for(1s);
        });
        g.go([](const context& ctx) { ctx.done().recv(); });
        settle();
        throw failure{3};
      } catch (const failure& f) {
        CHECK(f.number == 3);
        CHECK(local == 7);
      }
    });
  }

  TEST_CASE("its end is not cut short by a stop of who joins") {
    in_virtual([] {
      bool child_ended = false;
      auto owner = vigil::spawn([&] {
        group g;
        g.go([&] {
          const vigil::this_fiber::shield s;
          sleep_for(2s);
          child_ended = true;
        });
        g.wait();
      });
      sleep_for(1s);
      owner.request_stop();
      CHECK_THROWS_AS(owner.join(), cancelled);
      CHECK(child_ended);
    });
  }

  TEST_CASE("captures and fiber_locals of its fibers have died when wait returns") {
    static std::atomic<int> locals{0};

    struct counted {
      counted() { ++locals; }

      counted(const counted&) { ++locals; }

      ~counted() { --locals; }
    };

    in_runtime({{1, 2}, {}}, [] {
      for (int round = 0; round < rounds(200); ++round) {
        static vigil::fiber_local<counted> local;
        const int before = locals.load();
        auto shared = std::make_shared<int>(1);
        group g;
        for (int i = 0; i < 4; ++i) {
          g.go([shared] {
            static_cast<void>(*local);
            vigil::this_fiber::yield();
          });
        }
        g.wait();
        CHECK(shared.use_count() == 1);
        CHECK(locals.load() == before);
      }
    });
  }

  TEST_CASE("its own fibers may start more of it") {
    in_runtime({}, [] {
      std::atomic<int> ran{0};
      group g;
      for (int i = 0; i < 10; ++i) {
        g.go([&] {
          ++ran;
          for (int k = 0; k < 10; ++k)
            g.go([&] { ++ran; });
        });
      }
      g.wait();
      CHECK(ran.load() == 110);
    });
  }

  TEST_CASE("wait_for tells whether all have ended, and a wait may have a context") {
    in_virtual([] {
      group g;
      g.go([] { sleep_for(2s); });
      CHECK_FALSE(g.wait_for(0s));
      CHECK_FALSE(g.wait_for(1s - 1ns));
      CHECK_FALSE(g.wait_until(clock::now() - 1h));
      CHECK_FALSE(g.wait_until(std::chrono::steady_clock::now() + 1ns));
      CHECK_THROWS_AS(g.wait(with_timeout(background(), 500ms).ctx), cancelled);
      CHECK(g.wait_until(clock::now() + 1s));
      g.wait();
    });
  }

  TEST_CASE("a plain thread may wait for one, and cancel it") {
    in_runtime({{1, 2}, {}}, [](vigil::runtime& rt) {
      const auto guard = rt.make_work_guard();
      auto g = std::make_unique<group>();
      g->go([](const context& ctx) { ctx.done().recv(); });
      auto joined = vigil::make_channel<void>(1);
      std::thread thread([&] {
        CHECK_FALSE(g->wait_for(1ms));
        g->cancel();
        g->wait();
        g.reset();
        joined.send();
      });
      joined.recv();
      thread.join();
    });
  }

  TEST_CASE("at the shutdown its fibers and who waits end silently") {
    in_virtual([] {
      vigil::go([] {
        group g;
        g.go([](const context& ctx) { sleep_for(1h, ctx); });
        g.go([] { sleep_for(1h); });
        g.wait();
      });
      sleep_for(1s);
    });
  }

  TEST_CASE("bad input: a nil parent, an empty function, a thread without a runtime") {
    CHECK_THROWS_AS(group{context()}, std::invalid_argument);
    in_virtual([] {
      group g(group::options{.limit = 1});
      void (*const none)() = nullptr;
      CHECK_THROWS_AS(g.go(none), std::invalid_argument);
      g.go([] {});  // the place was given back
      g.wait();
    });
    group g(group::options{.limit = 1});
    CHECK_THROWS_AS(g.go([] {}), vigil::wrong_place);
    CHECK_THROWS_AS(static_cast<void>(g.try_go([] {})), vigil::wrong_place);
    g.wait();
  }

  TEST_CASE("errors, ends and starts from everywhere at once: each fiber ends before wait") {
    in_runtime({{2, 4}, {}}, [] {
      for (int round = 0; round < rounds(300); ++round) {
        auto parent = with_cancel(background());
        std::atomic<int> alive{0};
        int thrown = 0;
        {
          group g(parent.ctx, {.limit = static_cast<std::size_t>(round % 4)});
          auto other = vigil::spawn([&] { parent.cancel(); });
          for (int i = 0; i < 8; ++i) {
            g.go([&, i](const context& ctx) {
              ++alive;
              struct at_end {
                std::atomic<int>& n;

                ~at_end() { --n; }
              } const mark{alive};

              if (i == round % 8) throw failure{i};
              sleep_for(10us, ctx);
            });
          }
          try {
            g.wait();
          } catch (const failure&) {
            ++thrown;
          } catch (const cancelled&) {
            ++thrown;
          }
          CHECK(alive.load() == 0);
          other.join();
        }
        CHECK(thrown == 1);
      }
    });
  }
}

TEST_SUITE("group_of") {
  TEST_CASE("brings the results in the order of go, whatever the order of the ends") {
    for_each_seed(10, [] {
      group_of<std::string> g(group_of<std::string>::options{.limit = 3});
      for (int i = 0; i < 10; ++i) {
        g.go([i](const context& ctx) {
          sleep_for((i * 7 % 10) * 1ms, ctx);
          return std::to_string(i);
        });
      }
      const auto all = g.wait();
      REQUIRE(all.size() == 10);
      for (int i = 0; i < 10; ++i)
        CHECK(all[static_cast<std::size_t>(i)] == std::to_string(i));
    });
  }

  TEST_CASE("takes move-only results, and throws the first error instead of any") {
    in_virtual([] {
      group_of<std::unique_ptr<int>> good;
      good.go([] { return std::make_unique<int>(7); });
      CHECK(*good.wait().at(0) == 7);
      group_of<std::unique_ptr<int>> bad;
      bad.go([] { return std::make_unique<int>(7); });
      bad.go([]() -> std::unique_ptr<int> { throw failure{4}; });
      CHECK_THROWS_AS(bad.wait(), failure);
      CHECK(bad.context().is_done());
    });
  }

  TEST_CASE("a go that throws leaves no gap among the results") {
    struct throws_when_moved {
      throws_when_moved() = default;

      throws_when_moved(throws_when_moved&&) { throw failure{3}; }

      int operator()() const { return 0; }
    };

    in_virtual([] {
      group_of<int> g;
      g.go([] { return 1; });
      CHECK_THROWS_AS(g.go(throws_when_moved()), failure);
      g.go([] { return 2; });
      CHECK(g.wait() == std::vector<int>{1, 2});
      CHECK_THROWS_AS(g.go([] { return 3; }), std::logic_error);
      CHECK(g.wait().empty());
    });
  }

  TEST_CASE("has all results or none: after a cancel wait throws cancelled, with its cause") {
    in_virtual([] {
      group_of<int> g;
      for (int i = 0; i < 3; ++i) {
        g.go([i] {
          if (i == 1) sleep_for(1h);
          return i;
        });
      }
      settle();
      g.cancel(std::make_exception_ptr(failure{7}));
      for (int again = 0; again < 2; ++again) {
        try {
          static_cast<void>(g.wait());
          FAIL("no error");
        } catch (const cancelled& c) {
          CHECK(c.code() == std::errc::operation_canceled);
          CHECK_FALSE(c.is_by_shutdown());
          CHECK_THROWS_AS(std::rethrow_exception(c.cause()), failure);
        }
      }
      // All had ended before: nothing is missing.
      group_of<int> late;
      late.go([] { return 5; });
      settle();
      late.cancel();
      CHECK(late.wait() == std::vector<int>{5});
      CHECK(late.wait().empty());
    });
  }

  TEST_CASE("wait_for tells whether all have ended") {
    in_virtual([] {
      group_of<int> g;
      g.go([] {
        sleep_for(2s);
        return 1;
      });
      CHECK_FALSE(g.wait_for(0s));
      CHECK_FALSE(g.wait_for(1s));
      CHECK(g.wait_until(clock::now() + 2s));
      CHECK(g.wait() == std::vector<int>{1});
    });
  }

  TEST_CASE("that is left alone joins its fibers before its results die") {
    in_virtual([] {
      bool ended = false;
      {
        group_of<int> g;
        g.go([&] {
          const vigil::this_fiber::shield s;
          sleep_for(1s);
          ended = true;
          return 1;
        });
        settle();
      }
      CHECK(ended);
    });
  }
}
