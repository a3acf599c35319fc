// The grace that a signal of stop_on gives if options::grace is not named, and the result
// of run() after a signal.
#include "core/runtime/runtime_test.hpp"
#include "core/sched/run/run_end.hpp"
#include "core/sched/run_core.hpp"
#include "support/send_to_process.hpp"

#include <vigil/stop_token.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stop_token>

using namespace vigil::testing_support;
using vigil::background;
using nanoseconds = std::chrono::nanoseconds;

namespace {

vigil::testing::virtual_options with_signal() {
  vigil::testing::virtual_options how;
  how.runtime.stop_on = {SIGUSR1, SIGUSR2};
  return how;
}

// Waits for the end; returns how long after `start` the stop came.
nanoseconds wait_until_stopped(vigil::clock::time_point start) {
  try {
    sleep_for(24h);
  } catch (const vigil::stopped&) {
    return since(start);
  }
  return -1ns;
}

// Returns how long after the signal a main function that waits in vain is stopped.
nanoseconds stopped_after(const vigil::testing::virtual_options& how) {
  nanoseconds after{};
  in_virtual(how, [&] {
    sleep_for(1s);
    send_to_process(SIGUSR1);
    after = wait_until_stopped(vigil::clock::now());
  });
  return after;
}

// Runs a main function that returns 2 s after the signal. Returns when a fiber was
// stopped that would go on for a day.
nanoseconds other_stopped_after(const vigil::testing::virtual_options& how) {
  nanoseconds after{};
  in_virtual(how, [&] {
    const auto start = vigil::clock::now();
    vigil::go([&after, start] { after = wait_until_stopped(start); });
    send_to_process(SIGUSR1);
    sleep_for(2s);
  });
  return after;
}

}  // namespace

TEST_SUITE("the grace that options do not name") {
  TEST_CASE("work that has begun goes on when a signal comes, and main waits for it") {
    bool saved = false;
    nanoseconds took{};
    in_virtual(with_signal(), [&] {
      auto work = spawn([&] {
        sleep_for(4s, vigil::without_cancel(background()));
        saved = true;
      });
      sleep_for(1s);
      const auto start = vigil::clock::now();
      send_to_process(SIGUSR1);
      background().done().recv();
      work.join();
      took = since(start);
    });
    CHECK(saved);
    CHECK(took == 3s);
  }

  TEST_CASE("main is stopped five seconds after the signal") {
    CHECK(stopped_after(with_signal()) == 5s);
  }

  TEST_CASE("a grace of zero that is named means none") {
    auto how = with_signal();
    how.runtime.grace = 0s;
    CHECK(stopped_after(how) == 0s);
    how.runtime.grace = -1s;
    CHECK(stopped_after(how) == 0s);
    how.runtime.grace = 7s;
    CHECK(stopped_after(how) == 7s);
  }

  TEST_CASE("a request to stop has none, even if a signal comes right after it") {
    for (const bool signal_follows : {false, true}) {
      nanoseconds after{};
      in_virtual(with_signal(), [&] {
        static_cast<void>(background());  // so that the stop has work to do before
        const auto start = vigil::clock::now();
        vigil::detail::run_of(*vigil::detail::current_scheduler()).end.request_stop();
        if (signal_follows) send_to_process(SIGUSR1);
        after = wait_until_stopped(start);
      });
      CHECK(after == 0s);
    }
  }

  TEST_CASE("it lasts until main's function has returned, not until the others have ended") {
    CHECK(other_stopped_after(with_signal()) == 2s);
    auto how = with_signal();
    how.runtime.exit = vigil::exit_when::all_done;
    CHECK(other_stopped_after(how) == 2s);
    how.runtime.grace = 7s;
    CHECK(other_stopped_after(how) == 7s);
  }

  TEST_CASE("a signal that comes after main's function has returned has none") {
    auto how = with_signal();
    how.runtime.exit = vigil::exit_when::all_done;
    nanoseconds after{};
    in_virtual(how, [&] {
      vigil::go([&] {
        sleep_for(1s);
        const auto start = vigil::clock::now();
        send_to_process(SIGUSR1);
        after = wait_until_stopped(start);
      });
    });
    CHECK(after == 0s);
  }

  TEST_CASE("another signal ends it") {
    nanoseconds after{};
    in_virtual(with_signal(), [&] {
      const auto start = vigil::clock::now();
      vigil::go([&] {
        send_to_process(SIGUSR1);
        sleep_for(199ms);
        send_to_process(SIGUSR1);  // too early: a repetition
        sleep_for(101ms);
        send_to_process(SIGUSR2);
      });
      after = wait_until_stopped(start);
    });
    CHECK(after == 300ms);
  }

  TEST_CASE("it does not lengthen a grace that is announced, and counts after that") {
    for (const bool is_withdrawn : {false, true}) {
      nanoseconds after{};
      in_virtual(with_signal(), [&] {
        const auto start = vigil::clock::now();
        auto server = spawn([is_withdrawn] {
          const vigil::this_fiber::shield shield;
          vigil::detail::run_end& end =
              vigil::detail::run_of(*vigil::detail::current_scheduler()).end;
          vigil::detail::grace_request two;
          two.length = 2'000'000'000;
          end.announce_grace(two);
          sleep_for(is_withdrawn ? 1s : 3s);
          end.withdraw_grace(two);
        });
        vigil::this_fiber::yield();
        send_to_process(SIGUSR1);
        after = wait_until_stopped(start);
      });
      CHECK(after == (is_withdrawn ? 5s : 2s));
    }
  }

  TEST_CASE("a callback of the root context's end that blocks does not hold it up") {
    nanoseconds main_after{};
    nanoseconds other_after{};
    in_virtual(with_signal(), [&] {
      const auto start = vigil::clock::now();
      const std::stop_callback blocks(vigil::stop_token_of(background()), [] { sleep_for(3s); });
      vigil::go([&] { other_after = wait_until_stopped(start); });
      send_to_process(SIGUSR1);
      sleep_for(1s);
      main_after = since(start);
    });
    CHECK(main_after == 1s);
    CHECK(other_after == 1s);
  }

  TEST_CASE("child: waits after a signal" * doctest::skip()) {
    auto how = with_signal();
    const std::string what = std::getenv("VIGIL_TEST_WHAT");
    if (what == "named") how.runtime.grace = 5s;
    in_virtual(how, [&] {
      send_to_process(SIGUSR1);
      const vigil::this_fiber::shield shield;
      sleep_for(what == "short" ? 999ms : 4s);
    });
  }

  TEST_CASE("after a second a line names main's wait and what ends it") {
    const auto say = [](const char* what) {
      return run_child("child: waits after a signal", {{"VIGIL_TEST_WHAT", what}});
    };
    const child_result r = say("long");
    CHECK_MESSAGE(r.succeeded(), r.output);
    constexpr const char* line = "SIGUSR1 came 1.000 s ago, and main's function has not returned";
    const auto first = r.output.find(line);
    CHECK_MESSAGE(first != std::string::npos, r.output);
    CHECK_MESSAGE(r.output.find(line, first + 1) == std::string::npos, r.output);
    CHECK_MESSAGE(r.says("waits for: sleep"), r.output);
    CHECK_MESSAGE(r.says("stopped in 4.000 s"), r.output);
    CHECK_MESSAGE(r.says("options::grace"), r.output);
    CHECK_FALSE(say("short").says("has not returned"));
    CHECK_FALSE(say("named").says("has not returned"));
  }
}

namespace {

vigil::options stopped_at_once() {
  vigil::options o;
  o.workers = 2;
  o.stop_on = {SIGUSR1, SIGUSR2};
  o.grace = 0s;
  return o;
}

void signal_and_wait(int signal = SIGUSR1) {
  send_to_process(signal);
  sleep_for(1h);
}

}  // namespace

TEST_SUITE("the result of a run that a signal has ended") {
  TEST_CASE("is 128 and the signal if main's function was unwound") {
    CHECK(vigil::run(stopped_at_once(), [] { signal_and_wait(SIGUSR2); }) == 128 + SIGUSR2);
    CHECK(vigil::run(stopped_at_once(), [] {
            signal_and_wait(SIGUSR1);
            return 7;
          }) == 128 + SIGUSR1);
    // `cancelled` unwinds as well.
    CHECK(vigil::run(stopped_at_once(), [] {
            send_to_process(SIGUSR1);
            sleep_for(1h, background());
            return 7;
          }) == 128 + SIGUSR1);
  }

  TEST_CASE("is that of a main function that has returned by itself") {
    vigil::options o = stopped_at_once();
    o.grace.reset();
    CHECK(vigil::run(o, [] {
            send_to_process(SIGUSR1);
            background().done().recv();
          }) == 0);
    CHECK(vigil::run(o, [] {
            send_to_process(SIGUSR1);
            background().done().recv();
            return 7;
          }) == 7);
    CHECK(vigil::run(stopped_at_once(), [] {
            try {
              signal_and_wait();
            } catch (const vigil::stopped&) {
            }
            return 7;
          }) == 7);
  }

  TEST_CASE("is an exception that names the signal if it can be no exit status") {
    const auto text = [] {
      signal_and_wait(SIGUSR1);
      return std::string("unused");
    };
    std::string said;
    try {
      vigil::run(stopped_at_once(), text);
    } catch (const vigil::cancelled& e) {
      said = e.what();
    }
    CHECK_MESSAGE(said.find("SIGUSR1") != std::string::npos, said);
    CHECK_THROWS_AS(vigil::run(stopped_at_once(),
                               [] {
                                 signal_and_wait();
                                 return false;
                               }),
                    vigil::cancelled);
  }

  TEST_CASE("without a signal is what it was: 0, or an exception for want of a result") {
    const auto stop = [] {
      vigil::runtime::current().request_stop();
      sleep_for(1h);
    };
    CHECK(vigil::run(stop) == 0);
    CHECK_THROWS_AS(vigil::run([&] {
                      stop();
                      return 7;
                    }),
                    vigil::cancelled);
  }

  TEST_CASE("the signal can be asked for, inside the run and after it") {
    vigil::runtime rt(stopped_at_once());
    CHECK(rt.stop_signal() == 0);
    int inside = 0;
    rt.run([&] {
      CHECK(rt.stop_signal() == 0);
      try {
        signal_and_wait(SIGUSR2);
      } catch (const vigil::stopped&) {
        inside = rt.stop_signal();
      }
    });
    CHECK(inside == SIGUSR2);
    CHECK(rt.stop_signal() == SIGUSR2);
    rt.run([&] { CHECK(rt.stop_signal() == 0); });
    CHECK(rt.stop_signal() == 0);
  }

  TEST_CASE("child: waits for a signal" * doctest::skip()) {
    const bool ends_by_itself = std::getenv("VIGIL_TEST_ENDS") != nullptr;
    vigil::options o;
    o.stop_on = {SIGTERM};
    if (!ends_by_itself) o.grace = 0s;
    std::_Exit(vigil::run(o, [=] {
      send_to_process(SIGTERM);
      if (ends_by_itself) {
        background().done().recv();
        return;
      }
      sleep_for(1h);
    }));
  }

  TEST_CASE("is what the parent process sees") {
    const child_result unwound = run_child("child: waits for a signal");
    CHECK_MESSAGE(WIFEXITED(unwound.status), unwound.output);
    CHECK(WEXITSTATUS(unwound.status) == 128 + SIGTERM);
    CHECK(run_child("child: waits for a signal", {{"VIGIL_TEST_ENDS", "1"}}).succeeded());
  }
}
