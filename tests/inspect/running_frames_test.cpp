// The frames of fibers that run, and the signal by which their threads are asked.
#include "inspect/inspect_helpers.hpp"
#include "machine/sanitizer.hpp"
#include "support/in_runtime.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>

#include <pthread.h>

using namespace vigil::testing_support;

namespace {

// A dump in which each thread has answered in time: a busy machine may need another one.
std::string answered() {
  for (;;) {
    const std::string text = inspected();
    if (!has(text, "has not answered")) return text;
  }
}

[[gnu::noinline]] void spin_until(const std::atomic<bool>& flag) {
  while (!flag.load(std::memory_order_relaxed)) {
  }
  asm volatile("" ::: "memory");
}

// Runs a fiber that calls `work` with a function that spins, and `look` on another thread
// while it spins.
template <class Work, class Look>
void while_a_fiber_spins(const char* name, Work work, Look look) {
  std::atomic<bool> stop{false};
  std::atomic<bool> spins{false};
  vigil::options two;
  two.workers = 2;
  vigil::run(two, [&] {
    auto f = vigil::spawn(vigil::fiber_options{.name = name}, [&] {
      work([&] {
        spins.store(true);
        spin_until(stop);
      });
    });
    vigil::blocking([&] {
      while (!spins.load())
        std::this_thread::yield();
      look();
    });
    stop.store(true);
    f.join();
  });
}

// With all signals blocked on its thread.
template <class F>
void deaf(F f) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  f();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);  // those that were sent come now
}

}  // namespace

// ThreadSanitizer delivers signals late, so nobody is asked under it.
TEST_SUITE("running frames") {
  TEST_CASE("a running fiber is asked where it is" * doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::string text;
    while_a_fiber_spins(
        "spinner", [](auto spin) { down(5, spin); }, [&] { text = answered(); });
    INFO(text);
    const auto functions = functions_below(text, "spinner");
    const auto count = [&](const char* name) {
      return std::count_if(
          functions.begin(), functions.end(), [&](const std::string& f) { return has(f, name); });
    };
    CHECK(count("::spin_until(") == 1);
    CHECK(count("::down(int") == 6);
    REQUIRE(!functions.empty());
    CHECK(has(functions.back(), "stack_begins"));
  }

  TEST_CASE("a running fiber whose thread blocks the signal is given up" *
            doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::string text;
    while_a_fiber_spins(
        "deaf", [](auto spin) { deaf(spin); }, [&] { text = inspected(); });
    CHECK(has(text, "(the thread that runs it has not answered)"));
  }

  TEST_CASE("the dump is called on a fiber: the fiber itself is one that runs") {
    vigil::inspect::install();
    in_virtual([] {
      std::string text;
      down(4, [&] { text = answered(); });
      INFO(text);
      CHECK(has(fiber_line(text, "main"), "[running"));
      if (VIGIL_TSAN == 0) CHECK(count_of(text, "::down(int") == 5);
    });
  }

  TEST_CASE("a handler that the program has for the signal is still called for its own") {
    static std::atomic<int> heard{0};
    std::signal(SIGUSR2, [](int) { heard.fetch_add(1); });
    vigil::inspect::install({.running_signal = SIGUSR2, .addresses = false});
    std::raise(SIGUSR2);
    CHECK(heard.load() == 1);
    in_virtual([] { inspected(); });
    CHECK(heard.load() == 1);
    std::raise(SIGUSR2);
    CHECK(heard.load() == 2);
    vigil::inspect::install();
  }

  TEST_CASE("a signal of ours that comes late does not reach the program's handler" *
            doctest::skip(VIGIL_TSAN)) {
    static std::atomic<int> heard{0};
    std::signal(SIGUSR1, [](int) { heard.fetch_add(1); });
    vigil::inspect::install({.running_signal = SIGUSR1, .addresses = false});
    while_a_fiber_spins(
        "deaf", [](auto spin) { deaf(spin); }, [] { inspected(); });
    CHECK(heard.load() == 0);
    vigil::inspect::install();
  }

  TEST_CASE("install() refuses what is no signal, and what has a meaning of its own") {
    for (const int wrong : {-1, 1000, SIGKILL, SIGSTOP, SIGSEGV, SIGQUIT, SIGTERM, SIGCHLD}) {
      CAPTURE(wrong);
      CHECK_THROWS_AS(vigil::inspect::install({.running_signal = wrong, .addresses = false}),
                      std::invalid_argument);
    }
    vigil::inspect::install({.running_signal = 0, .addresses = false});
    in_virtual([] { CHECK(has(inspected(), "(runs: it is not asked)")); });
    vigil::inspect::install();
  }
}
