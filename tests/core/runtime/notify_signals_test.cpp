// notify_signals: signals as values of a channel.
#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"
#include "support/send_to_process.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

namespace {

using namespace std::chrono_literals;
using vigil::testing_support::in_runtime;
using vigil::testing_support::send_to_process;
using vigil::testing_support::wait_until_at_rest;

bool is_default(int signal) {
  struct sigaction now {};

  ::sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_DFL;
}

TEST_SUITE("notify_signals") {
  TEST_CASE("hands over the numbers of the named signals, and of no others") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto signals = vigil::notify_signals({SIGUSR1, SIGUSR2});
      CHECK(signals.try_recv().status() == vigil::channel_status::not_ready);
      send_to_process(SIGUSR2);
      CHECK(signals.recv() == SIGUSR2);
      send_to_process(SIGUSR1);
      CHECK(signals.recv() == SIGUSR1);
    });
  }

  TEST_CASE("is a case of a select") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto signals = vigil::notify_signals({SIGUSR1});
      const auto never = vigil::make_channel<int>();
      vigil::go([] {
        vigil::sleep_for(1ms);
        send_to_process(SIGUSR1);
      });
      int seen = 0;
      const auto taken = vigil::select(
          vigil::on_recv(never),
          vigil::on_recv(signals, [&](std::optional<int> signal) { seen = signal.value_or(0); }));
      CHECK(taken == 1);
      CHECK(seen == SIGUSR1);
    });
  }

  TEST_CASE("each receiver hears of the signal") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto one = vigil::notify_signals({SIGUSR1});
      const auto other = vigil::notify_signals({SIGUSR1, SIGUSR2});
      send_to_process(SIGUSR1);
      CHECK(one.recv() == SIGUSR1);
      CHECK(other.recv() == SIGUSR1);
    });
  }

  TEST_CASE("a signal that finds the buffer full is dropped") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto narrow = vigil::notify_signals({SIGUSR1, SIGUSR2}, 1);
      const auto wide = vigil::notify_signals({SIGUSR1, SIGUSR2}, 2);
      send_to_process(SIGUSR1);
      while (wide.size() < 1)
        vigil::this_fiber::yield();
      send_to_process(SIGUSR2);
      while (wide.size() < 2)
        vigil::this_fiber::yield();
      CHECK(narrow.recv() == SIGUSR1);
      CHECK_FALSE(narrow.try_recv());
      CHECK(wide.recv() == SIGUSR1);
      CHECK(wide.recv() == SIGUSR2);
    });
  }

  TEST_CASE("waiting for one is not a deadlock") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto signals = vigil::notify_signals({SIGUSR1});
      std::thread late([&sched = *vigil::detail::current_scheduler()] {
        wait_until_at_rest(sched);
        send_to_process(SIGUSR1);
      });
      CHECK(signals.recv() == SIGUSR1);
      late.join();
    });
  }

  TEST_CASE("once a plain thread has dropped the last receiver a deadlock is seen") {
    for (const std::size_t workers : {1u, 2u}) {
      vigil::options settings;
      settings.workers = workers;
      settings.deadlock = vigil::on_deadlock::fatal;
      const auto nothing = vigil::make_channel<int>();
      std::thread dropping;
      const auto body = [&] {
        dropping = std::thread([&sched = *vigil::detail::current_scheduler(),
                                signals = vigil::notify_signals({SIGUSR1})]() mutable {
          // From then on only this thread can make the workers look again.
          wait_until_at_rest(sched);
          signals = {};
        });
        nothing.recv();
      };
      CHECK_THROWS_AS(vigil::run(settings, body), vigil::deadlock);
      dropping.join();
    }
  }

  TEST_CASE("the end of the run closes it, for a plain thread that waits, too") {
    for (int round = 0; round < 20; ++round) {
      vigil::receiver<int> kept;
      std::optional<int> seen = 0;
      std::thread waiting;
      vigil::run([&] {
        kept = vigil::notify_signals({SIGUSR1});
        waiting = std::thread([&seen, copy = kept] { seen = copy.recv(); });
        if (round % 2 == 0) vigil::sleep_for(1ms);
      });
      waiting.join();
      CHECK_FALSE(seen.has_value());
      CHECK(kept.try_recv().is_closed());
      CHECK(is_default(SIGUSR1));
    }
  }

  TEST_CASE("a handle dropped as the run ends removes it once") {
    for (int round = 0; round < 200; ++round) {
      std::thread dropping;
      vigil::run([&] {
        auto signals = vigil::notify_signals({SIGUSR1});
        dropping = std::thread([moved = std::move(signals)]() mutable { moved = {}; });
      });
      dropping.join();
    }
    CHECK(is_default(SIGUSR1));
  }

  TEST_CASE("signals that cannot be caught, or do not exist, are refused with a reason") {
    vigil::run([] {
      CHECK_THROWS_AS(vigil::notify_signals({}), std::invalid_argument);
      CHECK_THROWS_AS(vigil::notify_signals({SIGKILL}), std::invalid_argument);
      CHECK_THROWS_AS(vigil::notify_signals({0}), std::invalid_argument);
      CHECK_THROWS_AS(vigil::notify_signals({64}), std::invalid_argument);
      CHECK_THROWS_AS(vigil::notify_signals({SIGUSR1}, 0), std::invalid_argument);
    });
    CHECK_THROWS_AS(vigil::notify_signals({SIGUSR1}), vigil::wrong_place);
  }
}

}  // namespace
