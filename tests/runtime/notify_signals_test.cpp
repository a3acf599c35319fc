// notify_signals: signals as values of a channel.
#include "machine/sanitizer.hpp"
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using vigil::testing_support::in_runtime;

void raise_in_process(int signal) {
  ::kill(::getpid(), signal);
}

// ThreadSanitizer runs handlers when the thread next enters its run-time library,
// which a worker that sleeps does not.
constexpr bool signals_are_late = VIGIL_TSAN != 0;

bool is_default(int signal) {
  struct sigaction now {};

  ::sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_DFL;
}

TEST_SUITE("notify_signals") {
  TEST_CASE("hands over the numbers of the signals that were named, and of no others" *
            doctest::skip(signals_are_late)) {
    in_runtime({.workers = {1, 2}}, [] {
      const auto signals = vigil::notify_signals({SIGUSR1, SIGUSR2});
      CHECK(signals.try_recv().status() == vigil::channel_status::not_ready);
      raise_in_process(SIGUSR2);
      CHECK(signals.recv() == SIGUSR2);
      raise_in_process(SIGUSR1);
      CHECK(signals.recv() == SIGUSR1);
    });
  }

  TEST_CASE("is a case of a select" * doctest::skip(signals_are_late)) {
    in_runtime({.workers = {1, 2}}, [] {
      const auto signals = vigil::notify_signals({SIGUSR1});
      const auto never = vigil::make_channel<int>();
      vigil::go([] {
        vigil::sleep_for(1ms);
        raise_in_process(SIGUSR1);
      });
      int seen = 0;
      const auto taken = vigil::select(
          vigil::on_recv(never),
          vigil::on_recv(signals, [&](std::optional<int> signal) { seen = signal.value_or(0); }));
      CHECK(taken == 1);
      CHECK(seen == SIGUSR1);
    });
  }

  TEST_CASE("each receiver that was asked for hears of the signal" *
            doctest::skip(signals_are_late)) {
    in_runtime({.workers = {1, 2}}, [] {
      const auto one = vigil::notify_signals({SIGUSR1});
      const auto other = vigil::notify_signals({SIGUSR1, SIGUSR2});
      raise_in_process(SIGUSR1);
      CHECK(one.recv() == SIGUSR1);
      CHECK(other.recv() == SIGUSR1);
    });
  }

  TEST_CASE("a signal that finds the buffer full is dropped" * doctest::skip(signals_are_late)) {
    in_runtime({.workers = {1, 2}}, [] {
      const auto narrow = vigil::notify_signals({SIGUSR1, SIGUSR2}, 1);
      const auto wide = vigil::notify_signals({SIGUSR1, SIGUSR2}, 2);
      raise_in_process(SIGUSR1);
      while (wide.size() < 1)
        vigil::this_fiber::yield();
      raise_in_process(SIGUSR2);
      while (wide.size() < 2)
        vigil::this_fiber::yield();
      CHECK(narrow.recv() == SIGUSR1);
      CHECK_FALSE(narrow.try_recv());
      CHECK(wide.recv() == SIGUSR1);
      CHECK(wide.recv() == SIGUSR2);
    });
  }

  TEST_CASE("whoever waits for one is no deadlock" * doctest::skip(signals_are_late)) {
    in_runtime({.workers = {1, 2}}, [] {
      const auto signals = vigil::notify_signals({SIGUSR1});
      std::thread late([] {
        // Real time, so that the workers are asleep by then; it holds either way.
        std::this_thread::sleep_for(20ms);
        raise_in_process(SIGUSR1);
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
        dropping = std::thread([signals = vigil::notify_signals({SIGUSR1})]() mutable {
          // Real time, so that the workers are asleep by then, and nobody but this thread
          // can have them look again; the deadlock is found either way.
          std::this_thread::sleep_for(20ms);
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

  TEST_CASE("a handle that goes as the run ends takes it out once") {
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

  TEST_CASE("what cannot be caught, or is nothing, is refused with a reason") {
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
