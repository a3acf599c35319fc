// run and runtime.
#include "core/machine/process_threads.hpp"
#include "core/runtime/runtime_test.hpp"
#include "support/thread_count.hpp"

#include <csignal>
#include <functional>

using namespace vigil::testing_support;

TEST_SUITE("run") {
  TEST_CASE("returns f's result, and 0 for nothing") {
    CHECK(vigil::run([] { return 7; }) == 7);
    CHECK(vigil::run([] {}) == 0);
    CHECK(*vigil::run([] { return std::make_unique<int>(3); }) == 3);
    CHECK(vigil::run([] { return std::string("text"); }) == "text");
  }

  TEST_CASE("an exception of f leaves it after the shutdown") {
    std::atomic<bool> unwound{false};

    struct guard {
      std::atomic<bool>* flag;

      ~guard() { flag->store(true); }
    };

    CHECK_THROWS_WITH_AS(vigil::run([&] {
                           vigil::go([&] {
                             const guard g{&unwound};
                             sleep_for(1h);
                           });
                           sleep_for(2ms);
                           throw std::runtime_error("planted");
                         }),
                         "planted",
                         std::runtime_error);
    CHECK(unwound.load());
  }

  TEST_CASE("inside a fiber is refused and the fiber goes on") {
    in_virtual([] {
      CHECK_THROWS_AS(vigil::run([] {}), vigil::wrong_place);
      CHECK_THROWS_AS(vigil::testing::run_virtual([] {}), vigil::wrong_place);
      sleep_for(1s);
    });
  }

  TEST_CASE("while it is running it is refused on another thread") {
    vigil::runtime rt;
    rt.run([&] {
      bool refused = false;
      std::thread([&] {
        try {
          rt.run([] {});
        } catch (const vigil::wrong_place&) {
          refused = true;
        }
      }).join();
      CHECK(refused);
    });
  }

  TEST_CASE("an empty function is refused") {
    void (*none)() = nullptr;
    CHECK_THROWS_AS(vigil::run(none), std::invalid_argument);
    CHECK_THROWS_AS(vigil::run(std::function<void()>()), std::invalid_argument);
  }

  TEST_CASE("may be called again on the same runtime") {
    vigil::options o;
    o.workers = 2;
    vigil::runtime rt(o);
    for (int i = 0; i < rounds(100); ++i) {
      int ended = 0;
      rt.run([&] {
        vigil::go([] { sleep_for(1h); });
        vigil::after_func(1h, [] {});
        vigil::spawn([&] { ++ended; }).join();
        if (i % 3 == 0) sleep_for(10us);
      });
      CHECK(ended == 1);
      CHECK(rt.stats().fibers_alive == 0);
      CHECK(rt.stats().timers_pending == 0);
    }
  }

  TEST_CASE("one after the other leaves no stack, no thread and no handler behind") {
    struct sigaction before {};

    struct sigaction after {};

    ::sigaction(SIGQUIT, nullptr, &before);
    const auto stacks = vigil::detail::read_stack_stats().in_use;
    const auto threads = vigil::detail::process_thread_count();
    for (int i = 0; i < rounds(200); ++i) {
      vigil::options o;
      o.workers = static_cast<std::size_t>(1 + i % 3);
      vigil::run(o, [] {
        auto f = vigil::spawn([] { sleep_for(1us); });
        f.join();
      });
    }
    ::sigaction(SIGQUIT, nullptr, &after);
    CHECK(vigil::detail::read_stack_stats().in_use == stacks);
    CHECK(threads_once_at_most(threads) <= threads);
    CHECK(bool{before.sa_handler == after.sa_handler});
  }

  TEST_CASE("several runtimes run at once in one process") {
    std::vector<std::thread> threads;
    std::atomic<int> sum{0};
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        if (i == 0) {
          vigil::testing::run_virtual([&] {
            for (int round = 0; round < rounds(1000); ++round)
              sleep_for(1h);
            sum.fetch_add(1);
          });
          return;
        }
        vigil::options o;
        o.workers = 2;
        vigil::run(o, [&] {
          for (int round = 0; round < rounds(200); ++round) {
            auto f = vigil::spawn([] { sleep_for(1us); });
            f.join();
          }
          sum.fetch_add(1);
        });
      });
    }
    for (auto& t : threads)
      t.join();
    CHECK(sum.load() == 3);
  }

  TEST_CASE("a fiber of one runtime uses another from outside") {
    vigil::options o;
    o.workers = 1;
    vigil::runtime other(o);
    std::atomic<bool> up{false};
    std::atomic<bool> down{false};
    std::thread thread([&] {
      other.run([&] {
        up.store(true);
        while (!down.load())
          sleep_for(100us);
      });
    });
    vigil::run([&] {
      while (!up.load())
        sleep_for(100us);
      std::atomic<std::uint64_t> there{0};
      const auto* const here = &vigil::runtime::current();
      other.go([&] { there.store(&vigil::runtime::current() == &other ? 1 : 2); });
      while (there.load() == 0)
        sleep_for(100us);
      CHECK(there.load() == 1);
      CHECK(here != &other);
      CHECK(&vigil::runtime::current() == here);
      std::atomic<bool> fired{false};
      auto t = other.after_func(1h, [&] { fired.store(true); });
      CHECK(t.reset(0s));
      while (!fired.load())
        sleep_for(100us);
      CHECK_FALSE(t.stop());
      auto f = [&] {
        vigil::fiber<int> spawned;
        std::atomic<bool> made{false};
        other.go([&] {
          spawned = vigil::spawn([] {
            sleep_for(1ms);
            return 5;
          });
          made.store(true);
        });
        while (!made.load())
          sleep_for(100us);
        return spawned;
      }();
      CHECK(f.join() == 5);  // joined across runtimes
      down.store(true);
    });
    thread.join();
  }

  TEST_CASE("a callable whose copy waits leaves the other fibers of its worker where they are") {
    vigil::options o;
    o.workers = 1;
    vigil::runtime other(o);
    std::atomic<int> ran{0};

    struct waits_when_copied {
      explicit waits_when_copied(std::atomic<int>& count) : ran(&count) {}

      waits_when_copied(const waits_when_copied& from) : ran(from.ran) {
        for (int i = 0; i < 3; ++i)
          vigil::this_fiber::yield();
      }

      waits_when_copied(waits_when_copied&&) = default;
      waits_when_copied& operator=(waits_when_copied&&) = delete;
      ~waits_when_copied() = default;

      void operator()() const { ++*ran; }

      std::atomic<int>* ran;
    };

    vigil::run(o, [&] {
      const waits_when_copied f(ran);
      vigil::runtime* const here = &vigil::runtime::current();
      int beside = 0;
      const auto start_beside = [&] {
        vigil::go([&] {
          // While f is being copied, which waits.
          vigil::go([&] { beside += &vigil::runtime::current() == here ? 1 : 0; });
          vigil::post([&] { beside += &vigil::runtime::current() == here ? 1 : 0; });
          vigil::after_func(0s, [&] { beside += &vigil::runtime::current() == here ? 1 : 0; });
        });
      };
      start_beside();
      other.go(f);
      start_beside();
      other.post(f);
      start_beside();
      other.after_func(0s, f);
      for (int i = 0; i < 10'000 && beside < 9; ++i)
        vigil::this_fiber::yield();
      CHECK(beside == 9);
      CHECK(ran == 0);
    });
    other.run([&] {
      while (ran.load() < 3)
        sleep_for(100us);
    });
    CHECK(ran == 3);
  }

  TEST_CASE("plain threads start fibers while the runtime runs") {
    in_runtime({.workers = {1, 2, 4}}, [](vigil::runtime& rt) {
      std::atomic<int> ran{0};
      const int each = rounds(5000);
      std::vector<std::thread> threads;
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
          for (int n = 0; n < each; ++n)
            rt.go([&] { ran.fetch_add(1); });
        });
      }
      while (ran.load() != 3 * each)
        sleep_for(100us);
      for (auto& t : threads)
        t.join();
    });
  }

  TEST_CASE("a fiber started before run begins waits for it") {
    vigil::runtime rt;
    std::atomic<bool> ran{false};
    rt.go([&] { ran.store(true); });
    CHECK_FALSE(ran.load());
    rt.run([&] {
      while (!ran.load())
        vigil::this_fiber::yield();
    });
  }

  TEST_CASE("a runtime that never runs destroys the functions given to it") {
    const auto shared = std::make_shared<int>(1);
    {
      vigil::runtime rt;
      rt.go([p = shared] {});
      rt.after_func(1h, [p = shared] {});
      rt.after_func(0s, [p = shared] {});
      CHECK(shared.use_count() == 4);
    }
    CHECK(shared.use_count() == 1);
  }

  TEST_CASE("plain threads that start fibers across the end lose and leak none") {
    const auto shared = std::make_shared<int>(1);
    for (int round = 0; round < rounds(60); ++round) {
      std::atomic<bool> done{false};
      {
        vigil::options o;
        o.workers = 2;
        vigil::runtime rt(o);
        std::thread starter([&] {
          while (!done.load()) {
            try {
              rt.go([p = shared] { vigil::this_fiber::yield(); });
              rt.after_func(0s, [p = shared] {});
            } catch (const vigil::runtime_gone&) {
              break;
            } catch (const vigil::stopped&) {
              break;
            }
            std::this_thread::yield();
          }
        });
        rt.run([] { sleep_for(100us); });
        done.store(true);
        starter.join();
      }
      REQUIRE(shared.use_count() == 1);
    }
  }

  TEST_CASE("request_stop from a plain thread ends the main fiber's wait") {
    vigil::runtime rt;
    std::thread stopper;
    CHECK(rt.run([&] {
      stopper = std::thread([&] { rt.request_stop(); });
      sleep_for(1h);
    }) == 0);
    stopper.join();
  }

  TEST_CASE("an f that had a result to return and was stopped makes run throw cancelled") {
    vigil::runtime rt;
    std::thread stopper;
    CHECK_THROWS_AS(rt.run([&] {
      stopper = std::thread([&] { rt.request_stop(); });
      sleep_for(1h);
      return 5;
    }),
                    vigil::cancelled);
    stopper.join();
  }

  // Node, libuv: a stop before run makes it return at once
  // (loop_stop_before_run).
  TEST_CASE("a stop asked for before the first run, or between two, ends the next run only") {
    for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
      vigil::options o;
      o.workers = workers;
      vigil::runtime rt(o);
      for (int round = 0; round < 3; ++round) {
        rt.request_stop();
        rt.request_stop();
        bool done_at_first = false;
        bool slept = false;
        CHECK(rt.run([&] {
          done_at_first = vigil::background().is_done();
          sleep_for(1h);
          slept = true;
        }) == 0);
        CHECK(done_at_first);
        CHECK_FALSE(slept);
        CHECK(rt.run([] {
          sleep_for(1us);
          return 3;
        }) == 3);
      }
    }
  }

  TEST_CASE("a stop requested before the run ends fibers started before it, and its all_done") {
    vigil::options o;
    o.exit = vigil::exit_when::all_done;
    vigil::runtime rt(o);
    bool begun = false;
    bool slept = false;
    rt.go([&] {
      begun = true;
      sleep_for(1h);
      slept = true;
    });
    const vigil::work_guard guard = rt.make_work_guard();
    rt.request_stop();
    CHECK(rt.run([] { return 4; }) == 4);  // f is called and does not wait
    CHECK(begun);
    CHECK_FALSE(slept);
  }

  TEST_CASE("a stop asked for before the run leaves its fibers their grace") {
    vigil::options o;
    o.grace = 1h;
    vigil::runtime rt(o);
    rt.request_stop();
    bool cancelled = false;
    bool slept = false;
    rt.run([&] {
      try {
        sleep_for(1h, vigil::background());
      } catch (const vigil::cancelled&) {
        cancelled = true;
      }
      sleep_for(1us);
      slept = true;
    });
    CHECK(cancelled);
    CHECK(slept);
  }

  TEST_CASE("a runtime whose thread is just being started is stopped at any moment") {
    for (int i = 0; i < rounds(300); ++i) {
      vigil::runtime rt;
      std::thread runs([&] { rt.run([] { sleep_for(24h); }); });
      for (int k = 0; k < i % 7; ++k)
        std::this_thread::yield();
      rt.request_stop();
      runs.join();
    }
  }

  // Node, libuv: one long callback delays all (libuv#502).
  TEST_CASE("a fiber that never gives up its worker delays the timers of others only") {
    // P7: the watcher computes, another worker fires the timer.
    in_runtime({.workers = {2}}, [] {
      std::atomic<bool> fired{false};
      vigil::after_func(1ms, [&] { fired.store(true); });
      sleep_for(100us);
      while (!fired.load()) {
      }
    });
  }
}
