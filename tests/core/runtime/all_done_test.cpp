// exit_when::all_done: the run ends when nothing more is to come.
#include "core/runtime/runtime_test.hpp"
#include "support/gate.hpp"
#include "support/handler_watch.hpp"

#include <vigil/timeout_list.hpp>

#include <optional>

using namespace vigil::testing_support;

namespace {

vigil::options all_done() {
  vigil::options o;
  o.exit = vigil::exit_when::all_done;
  return o;
}

template <class F>
void in_virtual_until_done(F body) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    in_virtual({.seed = seed, .runtime = all_done()}, body);
}

// Called on a thread of a side pool: returns whether the run, with nothing else to do,
// waits for the function.
bool is_waited_for(vigil::detail::scheduler& s) {
  using vigil::detail::run_phase;
  while (s.state.phase() == run_phase::running && s.idle().asleep() < s.workers().size())
    std::this_thread::yield();
  return s.state.phase() == run_phase::running;
}

}  // namespace

TEST_SUITE("exit when all is done") {
  TEST_CASE("a program that has started nothing ends with its main fiber, with its result") {
    for (const unsigned workers : {1u, 2u}) {
      vigil::options o = all_done();
      o.workers = workers;
      CHECK(vigil::run(o, [] { return 7; }) == 7);
    }
    vigil::testing::run_virtual({.seed = 1, .runtime = all_done()}, [] {});
  }

  // Node, libuv: alive = active ref'd handles and requests.
  TEST_CASE("fibers and everything they start run to their ends, none is stopped") {
    real_options how{.settings = all_done()};
    std::atomic<int> ended{0};
    in_runtime(how, [&] {
      for (int i = 0; i < 10; ++i) {
        vigil::go([&ended] {
          vigil::sleep_for(1ms);
          vigil::go([&ended] {
            vigil::sleep_for(1ms);
            ++ended;
          });
          ++ended;
        });
      }
    });
    CHECK(ended.load() == 3 * 20);
  }

  // Node, libuv: alive = active ref'd handles and requests.
  TEST_CASE("a referenced timer holds the program until its callback has ended") {
    bool over = false;
    in_virtual_until_done([&] {
      const auto start = vigil::clock::now();
      over = false;
      vigil::after_func(1h, [&, start] {
        vigil::sleep_for(1h);
        over = true;
        CHECK(since(start) == 2h);
      });
    });
    CHECK(over);
  }

  TEST_CASE("a zero timer of the main fiber's last line runs") {
    int runs = 0;
    in_virtual_until_done([&] { vigil::after_func(0s, [&] { ++runs; }); });
    CHECK(runs == 3);
    in_runtime({.settings = all_done()}, [&] { vigil::after_func(0s, [&] { ++runs; }); });
    CHECK(runs == 6);
  }

  // Node, libuv: unref'd timers fire while something else lives; far away the
  // program ends without them.
  TEST_CASE("an unreferenced timer does not hold it, and fires while something else does") {
    int near = 0;
    int far = 0;
    in_virtual_until_done([&] {
      vigil::after_func(1min, [&] { ++near; }).unref();
      vigil::after_func(1h, [&] { ++far; }).unref();
      vigil::after_func(2min, [] {});
    });
    CHECK(near == 3);
    CHECK(far == 0);
  }

  // Node, libuv: unref inside its own callback.
  TEST_CASE("unref inside the callback of every ends the program after that run") {
    int runs = 0;
    vigil::timer t;
    in_virtual_until_done([&] {
      t = vigil::every(1s, [&runs, &t] {
        if (++runs % 5 == 0) t.unref();
      });
    });
    CHECK(runs == 15);
  }

  // Node, libuv: any way of stopping an unref'd interval inside its callback.
  TEST_CASE("stop inside the callback of every ends it, with and without ref") {
    for (const bool referenced : {true, false}) {
      int runs = 0;
      vigil::timer t;
      in_virtual_until_done([&] {
        t = vigil::every(1s, [&runs, &t] {
          ++runs;
          t.stop();
        });
        if (!referenced) {
          t.unref();
          vigil::after_func(1min, [] {});
        }
      });
      CHECK(runs == 3);
    }
  }

  // Node, libuv: ref, unref, hasRef.
  TEST_CASE("ref holds the program again after unref, pending or before it is armed") {
    int runs = 0;
    in_virtual_until_done([&] {
      auto t = vigil::after_func(1h, [&] { ++runs; });
      t.unref();
      t.unref();
      t.ref();
      auto stopped = vigil::after_func(1h, [&] { ++runs; });
      stopped.stop();
      stopped.unref();
      stopped.ref();
      stopped.reset(2h);
    });
    CHECK(runs == 6);
  }

  TEST_CASE("every counted from the end holds it during a run, too") {
    int runs = 0;
    vigil::timer t;
    in_virtual_until_done([&] {
      t = vigil::every(
          1s,
          [&runs, &t] {
            vigil::sleep_for(10s);
            if (++runs % 3 == 0) t.stop();
          },
          vigil::from_end);
    });
    CHECK(runs == 9);
  }

  // Node, libuv: unref'd timer made at the very end.
  TEST_CASE("an unreferenced timer made at the very end does not revive it") {
    bool ran = false;
    in_virtual_until_done([&] {
      vigil::after_func(1s, [&] { vigil::after_func(1s, [&] { ran = true; }).unref(); });
    });
    CHECK_FALSE(ran);
  }

  TEST_CASE("a chain of referenced timers that each arm the next ends after the last") {
    const int links = rounds(1'000'000);
    for (const unsigned workers : {1u, 2u}) {
      int left = links;
      vigil::options o = all_done();
      o.workers = workers;

      struct link {
        int& left;

        void operator()() const {
          if (--left > 0) vigil::after_func(0s, link{left});
        }
      };

      vigil::run(o, [&] { vigil::after_func(0s, link{left}); });
      CHECK(left == 0);
    }
    // Through the heap.
    int left = links / 10;

    struct later {
      int& left;

      void operator()() const {
        if (--left > 0) vigil::after_func(1us, later{left});
      }
    };

    in_virtual({.seed = 1, .runtime = all_done()}, [&] { vigil::after_func(1us, later{left}); });
    CHECK(left == 0);
  }

  TEST_CASE("chains on several workers, with a timer of their own each, all end") {
    in_runtime({.workers = {2, 4}, .settings = all_done()}, [] {
      static std::atomic<int> ended;
      ended = 0;
      struct link {
        int left;
        void operator()() const {
          if (left == 0) {
            ++ended;
          } else if (left % 3 == 0) {
            vigil::go([next = left - 1] { vigil::after_func(1us, link{next}); });
          } else {
            vigil::after_func(std::chrono::microseconds(left % 3), link{left - 1});
          }
        }
      };
      for (int i = 0; i < 8; ++i)
        vigil::after_func(0s, link{rounds(2000)});
      vigil::after_func(0s, [] {
        while (ended.load() < 8)
          vigil::sleep_for(1ms);
      });
    });
  }

  // Node, libuv: alive = active ref'd handles and requests.
  TEST_CASE("a function on the side pool holds it, and so does its fiber") {
    std::atomic<int> waited_for{0};
    std::atomic<int> went_on{0};
    in_runtime({.workers = {1, 2}, .settings = all_done()}, [&] {
      vigil::go([&] {
        vigil::blocking([&, s = vigil::detail::current_scheduler()] {
          if (is_waited_for(*s)) ++waited_for;
        });
        ++went_on;
      });
    });
    CHECK(waited_for == 2);
    CHECK(went_on == 2);
    // The caller abandons the function. Fibers that it starts as its last act run.
    waited_for = 0;
    std::atomic<int> ran{0};
    in_runtime({.workers = {1, 2}, .settings = all_done()}, [&](vigil::runtime& rt) {
      const auto left = std::make_shared<gate>();
      const auto caller = vigil::with_cancel(vigil::background());
      vigil::detail::scheduler& s = *vigil::detail::current_scheduler();
      CHECK_THROWS_AS(vigil::blocking(caller.ctx,
                                      [&, left, caller] {
                                        caller.cancel();
                                        left->wait();
                                        if (is_waited_for(s)) ++waited_for;
                                        rt.after_func(1us, [&ran] { ++ran; });
                                      }),
                      vigil::cancelled);
      left->open();
    });
    CHECK(waited_for == 2);
    CHECK(ran == 2);
  }

  TEST_CASE("a work guard holds it, and so do fibers that its thread starts before releasing it") {
    for (const unsigned workers : {1u, 2u}) {
      for (int round = 0; round < rounds(200); ++round) {
        vigil::options o = all_done();
        o.workers = workers;
        vigil::runtime rt(o);
        std::atomic<int> ran{0};
        std::thread outside;
        rt.run([&] {
          outside = std::thread([&, guard = rt.make_work_guard()]() mutable {
            rt.go([&] { ++ran; });
            rt.after_func(10us, [&] { ++ran; });
            guard.release();
          });
        });
        outside.join();
        CHECK(ran.load() == 2);
      }
    }
  }

  TEST_CASE("a plain thread that stops or unrefs the last timer ends it") {
    for (const bool stops : {true, false}) {
      for (int round = 0; round < rounds(100); ++round) {
        vigil::options o = all_done();
        o.workers = 2;
        std::thread outside;
        vigil::run(o, [&] {
          auto t = vigil::after_func(1h, [] {});
          outside = std::thread([t, stops] {
            if (stops) {
              t.stop();
            } else {
              t.unref();
            }
          });
        });
        outside.join();
      }
    }
  }

  TEST_CASE("a handler on a worker's own stack that drops the last timer ends it") {
    for (const bool stops : {true, false}) {
      vigil::options o = all_done();
      o.workers = 1;
      vigil::runtime rt(o);
      int calls = 0;
      rt.run([&] {
        vigil::after_func(1h, [] {}).unref();
        auto t = vigil::after_func(2h, [] {});
        handle_with([&, t, stops] {
          if (++calls > 1) {
            rt.request_stop();  // the worker has lain down again: nobody has readied the main fiber
          } else if (stops) {
            t.stop();
          } else {
            t.unref();
          }
        });
      });
      CHECK(calls == 1);
    }
  }

  TEST_CASE("ref, unref, stop and reset of one timer from many fibers leave no count behind") {
    in_runtime({.workers = {2, 4}, .settings = all_done()}, [] {
      auto t = vigil::after_func(1h, [] {});
      for (int i = 0; i < 4; ++i) {
        vigil::go([t, i] {
          seeded dice(static_cast<std::uint64_t>(i) + 1);
          for (int n = 0; n < rounds(20'000); ++n) {
            switch (dice.below(4)) {
              case 0:
                t.ref();
                break;
              case 1:
                t.unref();
                break;
              case 2:
                t.stop();
                break;
              default:
                t.reset(dice.below(2) == 0 ? 1h : 0h);
            }
          }
          t.stop();
        });
      }
    });
  }

  // Node, libuv: an unref'd promise timer holds nothing.
  TEST_CASE("fibers parked for ever with nothing pending are a deadlock") {
    vigil::options o = all_done();
    o.deadlock = vigil::on_deadlock::fatal;
    for (const unsigned workers : {1u, 2u}) {
      o.workers = workers;
      CHECK_THROWS_AS(vigil::run(o, [] { vigil::go([] { vigil::make_channel<int>().recv(); }); }),
                      vigil::deadlock);
    }
    CHECK_THROWS_AS(
        vigil::testing::run_virtual({.seed = 1, .runtime = o},
                                    [] { vigil::go([] { vigil::make_channel<int>().recv(); }); }),
        vigil::deadlock);
  }

  TEST_CASE("an exception of the main fiber ends the run at once") {
    bool ran = false;
    CHECK_THROWS_AS(vigil::testing::run_virtual({.seed = 1, .runtime = all_done()},
                                                [&] {
                                                  vigil::after_func(1s, [&] { ran = true; });
                                                  throw std::runtime_error("x");
                                                }),
                    std::runtime_error);
    CHECK_FALSE(ran);
  }

  // Node, libuv: AbortSignal.timeout holds nothing; with_timeout, timeout_list,
  // select are unref'd.
  TEST_CASE("an entry of a timeout list keeps no program alive") {
    bool has_expired = false;
    vigil::timeout_list::entry one;
    std::optional<vigil::timeout_list> idle;
    in_virtual({.seed = 1, .runtime = all_done()}, [&] {
      idle.emplace(1h, [&](vigil::timeout_list::entry&) { has_expired = true; });
      idle->add(one);
    });
    CHECK_FALSE(has_expired);
    CHECK_FALSE(one.is_linked());
  }

  // Node, libuv: stop ends this run only (loop_stop); closing a loop with live
  // timers; a second loop (loop_close, default_loop_close).
  TEST_CASE("a stop ends the wait, and the run may be repeated") {
    vigil::runtime rt(all_done());
    for (int round = 0; round < 3; ++round) {
      bool ran = false;
      std::thread stops;
      rt.run([&] {
        vigil::after_func(1h, [&] { ran = true; });
        stops = std::thread([&] { rt.request_stop(); });
      });
      stops.join();
      CHECK_FALSE(ran);
      rt.run([&] { vigil::after_func(1ms, [&] { ran = true; }); });
      CHECK(ran);
    }
  }
}
