// Groups: fibers that end together (Go's errgroup). The first error, the waits, bad
// input.
#include "core/cancel/cancel_test.hpp"
#include "support/note.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>

using namespace vigil::testing_support;

namespace {

// A fiber's function that counts itself while it runs.
auto counted_for_a_second(int& alive) {
  return [&alive] {
    ++alive;
    sleep_for(1s);
    --alive;
  };
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

  // The seed decides whether the starter runs between the end of the first fiber and the
  // waiter that this end has readied.
  TEST_CASE("wait goes on for a fiber that starts between the last end and the waiter") {
    for_each_seed(100, [] {
      group g;
      int alive = 0;
      const auto live = counted_for_a_second(alive);
      g.go(live);
      auto starter = vigil::spawn([&] {
        sleep_for(1s);
        try {
          g.go(live);
        } catch (const std::logic_error&) {
          // The wait was over first.
        }
      });
      g.wait();
      CHECK(alive == 0);
      starter.join();
      CHECK(alive == 0);
      CHECK(g.wait_for(0s));
    });
  }

  TEST_CASE("wait_for goes on until its deadline for fibers that start meanwhile") {
    for_each_seed(100, [] {
      const auto start = clock::now();
      group g;
      int alive = 0;
      const auto live = counted_for_a_second(alive);
      g.go(live);
      auto starter = vigil::spawn([&] {
        for (int i = 0; i < 5; ++i) {
          sleep_for(1s);
          g.go(live);
        }
      });
      if (g.wait_for(3500ms)) {
        CHECK(alive == 0);
      } else {
        CHECK(since(start) == 3500ms);
      }
      starter.join();
      CHECK(g.wait_for(1h));
      CHECK(alive == 0);
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

  TEST_CASE("go after wait is refused, and the message gives the remedy") {
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

  TEST_CASE("bad input: a nil parent, an empty function, a thread without a runtime") {
    CHECK_THROWS_AS(group{context()}, std::invalid_argument);
    in_virtual([] {
      group g(group::options{.limit = 1});
      void (*const none)() = nullptr;
      CHECK_THROWS_AS(g.go(none), std::invalid_argument);
      g.go([] {});  // the slot was returned
      g.wait();
    });
    group g(group::options{.limit = 1});
    CHECK_THROWS_AS(g.go([] {}), vigil::wrong_place);
    CHECK_THROWS_AS(static_cast<void>(g.try_go([] {})), vigil::wrong_place);
    g.wait();
  }

  TEST_CASE("an error names the call that was made") {
    const auto text_of = [](auto call) {
      try {
        call();
      } catch (const std::exception& e) {
        return std::string(e.what());
      }
      return std::string("no error");
    };
    const auto begins = [](const std::string& text, const char* with) {
      NOTE("text: ", text);
      CHECK(text.rfind(with, 0) == 0);
    };
    void (*const none)() = nullptr;
    int (*const no_result)() = nullptr;
    group g;
    vigil::group_of<int> results;
    // Without a runtime.
    begins(text_of([&] { g.go([] {}); }), "vigil::group::go: this thread has no runtime");
    begins(text_of([&] { static_cast<void>(g.try_go([] {})); }),
           "vigil::group::try_go: this thread has no runtime");
    begins(text_of([&] { results.go([] { return 1; }); }),
           "vigil::group_of::go: this thread has no runtime");
    // With an empty function.
    begins(text_of([&] { g.go(none); }), "vigil::group::go: the function is empty");
    begins(text_of([&] { static_cast<void>(g.try_go(none)); }),
           "vigil::group::try_go: the function is empty");
    begins(text_of([&] { results.go(no_result); }), "vigil::group_of::go: the function is empty");
    begins(text_of([&] { static_cast<void>(results.try_go(no_result)); }),
           "vigil::group_of::try_go: the function is empty");
    // After wait().
    g.wait();
    static_cast<void>(results.wait());
    begins(text_of([&] { g.go([] {}); }), "vigil::group::go: the group has been waited for");
    begins(text_of([&] { static_cast<void>(g.try_go([] {})); }),
           "vigil::group::try_go: the group has been waited for");
    begins(text_of([&] { results.go([] { return 1; }); }),
           "vigil::group_of::go: the group has been waited for");
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
