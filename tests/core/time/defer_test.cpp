// defer: when its functions start, and that they starve nobody.
#include "core/time/post_helpers.hpp"

#include <string>

using namespace vigil::testing_support;

namespace {

// Defers itself until told to end.
struct endless_defer {
  std::shared_ptr<std::atomic<bool>> end;

  void operator()() const {
    if (!*end) vigil::defer(endless_defer{end});
  }
};

// Calls a function once, when it is destroyed.
template <class F>
class calls_as_it_dies {
 public:
  explicit calls_as_it_dies(F f) : f_(std::make_shared<F>(std::move(f))) {}

  calls_as_it_dies(calls_as_it_dies&&) noexcept = default;
  calls_as_it_dies& operator=(calls_as_it_dies&&) = delete;

  ~calls_as_it_dies() {
    if (f_ != nullptr) (*f_)();
  }

 private:
  std::shared_ptr<F> f_;
};

}  // namespace

TEST_SUITE("defer") {
  // Node, libuv: order: rest of the operation, ticks, then timers, immediates.
  TEST_CASE("in a callback starts after it has returned, in order, before posted functions") {
    for_each_seed(10, [] {
      std::string order;
      vigil::after_func(1s, [&order] {
        vigil::post([&order] { order += 'p'; });
        vigil::defer([&order] { order += '1'; });
        vigil::defer([&order] { order += '2'; });
        order += 'c';
      });
      vigil::sleep_for(2s);
      CHECK(order == "c12p");
    });
  }

  TEST_CASE("on a fiber starts when it parks, yields or ends, and not before") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      for (int round = 0; round < rounds(200); ++round) {
        std::atomic<int> ran{0};
        std::atomic<bool> early{false};
        std::atomic<bool> in_stretch{true};
        const auto note = [&] {
          if (in_stretch.load()) early = true;
          ++ran;
        };
        auto f = vigil::spawn([&] {
          vigil::defer(note);
          for (int i = 0; i < 100; ++i)
            CHECK(ran.load() == 0);
          in_stretch = false;
          switch (round % 3) {
            case 0:
              vigil::sleep_for(1us);
              break;
            case 1:
              vigil::this_fiber::yield();
              break;
            default:
              break;
          }
        });
        f.join();
        while (ran.load() == 0)
          vigil::this_fiber::yield();
        CHECK(ran.load() == 1);
        CHECK_FALSE(early);
      }
    });
  }

  TEST_CASE("a wait on a channel is a park, and the function may end it") {
    in_runtime({.workers = {1, 2}}, [] {
      auto ch = vigil::make_channel<int>();
      for (int i = 0; i < rounds(1000); ++i) {
        vigil::defer([ch, i] { ch.send(i); });
        CHECK(*ch.recv() == i);
      }
    });
  }

  TEST_CASE("in a callback that parks it starts then") {
    in_virtual([] {
      std::string order;
      vigil::after_func(1s, [&order] {
        vigil::defer([&order] { order += 'd'; });
        vigil::sleep_for(1s);
        order += 'c';
      });
      vigil::sleep_for(5s);
      CHECK(order == "dc");
    });
  }

  TEST_CASE("a function deferred by a deferred function comes in a later round") {
    for_each_seed(5, [] {
      std::string order;
      vigil::post([&order] {
        vigil::defer([&order] {
          order += '1';
          vigil::defer([&order] { order += '3'; });
        });
        vigil::post([&order] { order += '2'; });
      });
      vigil::testing::settle();
      CHECK(order == "123");
    });
  }

  // Node, libuv: recursive setImmediate lets others through; recursive nextTick
  // starves them.
  TEST_CASE("an endless chain starves neither timers nor fibers nor posts") {
    in_runtime({.workers = {1, 2}}, [] {
      auto end = std::make_shared<std::atomic<bool>>(false);
      vigil::defer(endless_defer{end});
      for (int i = 0; i < 3; ++i)
        vigil::sleep_for(1ms);
      check_others_have_their_turn();
      *end = true;
    });
  }

  TEST_CASE("by the main fiber's last line it holds a program that ends when all is done") {
    for (const unsigned workers : {1u, 2u}) {
      vigil::options o = all_done();
      o.workers = workers;
      int runs = 0;
      vigil::run(o, [&runs] {
        vigil::defer([&runs] {
          ++runs;
          vigil::defer([&runs] { ++runs; });
        });
      });
      CHECK(runs == 2);
    }
  }

  TEST_CASE("one not started when the run ends never starts, and its captures are destroyed") {
    auto token = std::make_shared<int>(0);
    vigil::testing::run_virtual([token] { vigil::defer([token] { FAIL("runs"); }); });
    CHECK(token.use_count() == 1);
  }

  TEST_CASE("before an exception of the main fiber it does not run in the next run") {
    for (const unsigned workers : {1u, 2u}) {
      vigil::options o;
      o.workers = workers;
      vigil::runtime rt(o);
      auto token = std::make_shared<int>(0);
      CHECK_THROWS_AS(rt.run([token] {
        vigil::defer([token] { ++*token; });
        throw std::runtime_error("x");
      }),
                      std::runtime_error);
      CHECK(token.use_count() == 1);
      *token = 0;  // it may have run in the first round
      rt.run([] { vigil::sleep_for(1ms); });
      CHECK(*token == 0);
    }
  }

  TEST_CASE("by captures destroyed as the run ends it never starts, and its own captures go, too") {
    vigil::options o;
    o.workers = 1;
    vigil::runtime rt(o);
    auto token = std::make_shared<int>(0);
    int died = 0;
    rt.run([&] {
      vigil::after_func(1h, [c = calls_as_it_dies([&died, token] {
                               ++died;
                               vigil::defer([token] { ++*token; });
                             })] {});
    });
    CHECK(died == 1);
    CHECK(token.use_count() == 1);
    rt.run([] { vigil::sleep_for(1ms); });
    CHECK(*token == 0);
  }

  TEST_CASE("by a fiber_local of the main fiber it belongs to the run") {
    static int ran;
    static std::weak_ptr<int> token;
    ran = 0;

    struct deferring {
      bool of_a_fiber = false;

      ~deferring() {
        if (!of_a_fiber) return;
        auto strong = std::make_shared<int>(0);
        token = strong;
        vigil::defer([strong] { ++ran; });
      }
    };

    static vigil::fiber_local<deferring> local;
    vigil::runtime rt(all_done());
    rt.run([] { local->of_a_fiber = true; });
    CHECK(ran == 1);
    CHECK(token.expired());
    rt.run([] {});
    CHECK(ran == 1);
  }

  TEST_CASE("at the very end of a fiber, by on_unhandled or a result that nobody wants, it runs") {
    static int ran;
    ran = 0;
    vigil::testing::virtual_options how;
    how.runtime.on_unhandled = [](std::exception_ptr) { vigil::defer([] { ++ran; }); };
    in_virtual(how, [] {
      vigil::go([] { throw 1; });
      vigil::testing::settle();
      CHECK(ran == 1);
      auto f = vigil::spawn([] { return calls_as_it_dies([] { vigil::defer([] { ++ran; }); }); });
      f.detach();
      vigil::testing::settle();
      CHECK(ran == 2);
    });
  }

  TEST_CASE(
      "by the captures of a callback it runs, and holds a program that ends when all is done") {
    for (const unsigned workers : {1u, 2u}) {
      for (int i = 0; i < rounds(200); ++i) {
        vigil::options o = all_done();
        o.workers = workers;
        std::atomic<int> ran{0};
        vigil::run(o, [&ran] {
          vigil::post([c = calls_as_it_dies([&ran] { vigil::defer([&ran] { ++ran; }); })] {});
        });
        CHECK(ran.load() == 1);
      }
    }
  }

  TEST_CASE("by the captures of each other, endlessly, it starves nobody") {
    struct link {
      std::shared_ptr<bool> end;

      void start() const {
        vigil::defer([c = calls_as_it_dies([next = *this] {
                        if (!*next.end) next.start();
                      })] {});
      }
    };

    in_runtime({.workers = {1}}, [] {
      const link chain{std::make_shared<bool>(false)};
      chain.start();
      int ran = 0;
      vigil::sleep_for(1ms);
      vigil::post([&ran] { ++ran; });
      while (ran == 0)
        vigil::this_fiber::yield();
      *chain.end = true;
    });
  }
}
