// Handlers that a program installs while a runtime runs.
#include "core/runtime/runtime_test.hpp"
#include "core/sched/call/park.hpp"
#include "support/at_rest.hpp"
#include "support/send_to_process.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

using namespace vigil::testing_support;

namespace {

void own_signal_handler(int) {}

// Returns whether the installed handler is the program's own; reinstalls `before`.
bool is_own_handler(int signal, const struct sigaction& before) {
  struct sigaction now {};

  ::sigaction(signal, &before, &now);
  return now.sa_handler == &own_signal_handler;
}

}  // namespace

TEST_SUITE("a handler that the program installs while it runs") {
  TEST_CASE("stays when run ends, for a signal of stop_on, a watched one and SIGQUIT") {
    struct sigaction usr1 {};

    struct sigaction usr2 {};

    struct sigaction quit {};

    struct sigaction standard {};

    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGUSR1, nullptr, &usr1);
    ::sigaction(SIGUSR2, nullptr, &usr2);
    ::sigaction(SIGQUIT, &standard, &quit);
    vigil::options o;
    o.workers = 1;
    o.stop_on = {SIGUSR1};
    vigil::run(o, [] {
      const auto watched = vigil::notify_signals({SIGUSR2});
      for (const int signal : {SIGUSR1, SIGUSR2, SIGQUIT})
        std::signal(signal, &own_signal_handler);
    });
    CHECK(is_own_handler(SIGUSR1, usr1));
    CHECK(is_own_handler(SIGUSR2, usr2));
    CHECK(is_own_handler(SIGQUIT, quit));
  }

  TEST_CASE("gives way to stop_on of a runtime that starts later, and is put back at the end") {
    struct sigaction before {};

    ::sigaction(SIGUSR1, nullptr, &before);
    vigil::options o;
    o.workers = 1;
    o.stop_on = {SIGUSR1};
    o.grace = 0s;
    vigil::run(o, [&] {
      std::signal(SIGUSR1, &own_signal_handler);
      std::thread([&] {
        vigil::run(o, [] {
          struct sigaction now {};

          ::sigaction(SIGUSR1, nullptr, &now);
          const bool is_own = now.sa_handler == &own_signal_handler;
          CHECK_FALSE(is_own);
          if (is_own) return;
          send_to_process(SIGUSR1);
          sleep_for(1h);
        });
      }).join();
    });
    CHECK(is_own_handler(SIGUSR1, before));
  }

  TEST_CASE("gives way to notify_signals of the same runtime") {
    struct sigaction before {};

    ::sigaction(SIGUSR1, nullptr, &before);
    vigil::options o;
    o.workers = 1;
    o.stop_on = {SIGUSR1};
    vigil::run(o, [] {
      std::signal(SIGUSR1, &own_signal_handler);
      const auto watched = vigil::notify_signals({SIGUSR1});

      struct sigaction now {};

      ::sigaction(SIGUSR1, nullptr, &now);
      CHECK(bool{now.sa_handler != &own_signal_handler});
    });
    CHECK(is_own_handler(SIGUSR1, before));
  }

  TEST_CASE("stays when run ends, for std::terminate; without one the earlier is put back") {
    const auto before = std::get_terminate();
    vigil::run([] {});
    CHECK(bool{std::get_terminate() == before});
    const std::terminate_handler own = [] { std::abort(); };
    vigil::run([&] { std::set_terminate(own); });
    CHECK(bool{std::get_terminate() == own});
    vigil::run([] {});
    CHECK(bool{std::get_terminate() == own});
    std::set_terminate(before);
  }

  TEST_CASE("child: std::terminate where handlers call each other" * doctest::skip()) {
    static std::terminate_handler earlier = nullptr;
    std::set_terminate([] {
      std::fputs("the first handler\n", stderr);
      std::abort();
    });
    vigil::run([] {
      earlier = std::set_terminate([] {
        std::fputs("the second handler\n", stderr);
        earlier();
      });
    });
    vigil::run([] {});
    vigil::run([] { std::terminate(); });
  }

  TEST_CASE("child: an exception in a second runtime" * doctest::skip()) {
    static std::terminate_handler earlier = nullptr;
    std::set_terminate([] {
      std::fputs("the first handler\n", stderr);
      std::abort();
    });
    vigil::run([] {
      earlier = std::set_terminate([] {
        std::fputs("the second handler\n", stderr);
        earlier();
      });
      std::thread([] {
        vigil::run([] {
          vigil::go([] { throw std::runtime_error("planted"); });
          sleep_for(1h);
        });
      }).join();
    });
  }

  TEST_CASE("gets the exception that ends a later runtime, after its fiber has been named") {
    const child_result r = run_child("child: an exception in a second runtime");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    const auto named = r.output.find("an exception has left fiber");
    REQUIRE(named != std::string::npos);
    const auto second = r.output.find("the second handler", named);
    REQUIRE(second != std::string::npos);
    CHECK(r.output.find("the second handler", second + 1) == std::string::npos);
    CHECK(r.output.find("the first handler", second) != std::string::npos);
  }

  TEST_CASE("may call the one that it has replaced, in later runs too") {
    const child_result r = run_child("child: std::terminate where handlers call each other");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    const auto second = r.output.find("the second handler");
    REQUIRE(second != std::string::npos);
    CHECK(r.output.find("the second handler", second + 1) == std::string::npos);
    CHECK(r.output.find("the first handler", second) != std::string::npos);
  }
}
