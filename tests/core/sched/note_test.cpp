#include "core/sched/wait/note.hpp"

#include "core/base/clock_source.hpp"
#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <csignal>
#include <thread>

#include <pthread.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::detail::monotonic_now;
using vigil::detail::never;

// Both kinds, whichever of them the library uses.
using futex_note = vigil::detail::basic_note<vigil::detail::kernel_words>;
using portable_note = vigil::detail::basic_note<vigil::detail::portable_words>;

TEST_SUITE("note") {
  TEST_CASE_TEMPLATE("a wake before the sleep is not lost", Note, futex_note, portable_note) {
    Note n;
    n.clear();
    CHECK_FALSE(n.wake());  // nobody sleeps: no system call
    CHECK(n.sleep_until(never));
  }

  TEST_CASE_TEMPLATE("clear forgets earlier wakes", Note, futex_note, portable_note) {
    Note n;
    n.clear();
    n.wake();
    n.wake();
    n.clear();
    CHECK_FALSE(n.sleep_until(monotonic_now() + 1'000'000));
  }

  TEST_CASE_TEMPLATE("a deadline ends the sleep, never early, and past ones at once",
                     Note,
                     futex_note,
                     portable_note) {
    Note n;
    for (const std::int64_t length : {0, 1, 1000, 100'000, 2'000'000}) {
      n.clear();
      const auto deadline = monotonic_now() + length;
      CHECK_FALSE(n.sleep_until(deadline));
      CHECK(monotonic_now() >= deadline);
    }
    n.clear();
    CHECK_FALSE(n.sleep_until(1));
    n.clear();
    CHECK_FALSE(n.sleep_until(0));
    n.clear();
    CHECK_FALSE(n.sleep_until(-5));
  }

  // Node, libuv: a signal does not fail a blocking call (eintr_handling).
  TEST_CASE_TEMPLATE("signals do not end the sleep", Note, futex_note, portable_note) {
    struct sigaction action {};

    struct sigaction before {};

    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, &before);
    Note n;
    n.clear();
    const pthread_t self = ::pthread_self();
    const pid_t sleeper = ::gettid();
    std::atomic<bool> done{false};
    std::thread disturber([&] {
      while (!done.load()) {
        ::pthread_kill(self, SIGUSR1);
        while (!done.load() && !is_asleep(sleeper))
          std::this_thread::yield();
      }
    });
    const auto deadline = monotonic_now() + 10'000'000;
    CHECK_FALSE(n.sleep_until(deadline));
    CHECK(monotonic_now() >= deadline);
    done.store(true);
    disturber.join();
    ::sigaction(SIGUSR1, &before, nullptr);
  }

  TEST_CASE_TEMPLATE(
      "a write before the wake is seen after the sleep", Note, futex_note, portable_note) {
    Note there;
    Note back;
    int value = 0;
    std::atomic<bool> done{false};
    there.clear();
    std::thread other([&] {
      for (int i = 0; i < rounds(20'000); ++i) {
        there.sleep_until(never);
        there.clear();
        ++value;
        back.wake();
      }
      done.store(true);
    });
    for (int i = 0; i < rounds(20'000); ++i) {
      back.clear();
      value = 2 * i;
      there.wake();
      back.sleep_until(never);
      REQUIRE(value == 2 * i + 1);
    }
    other.join();
    CHECK(done.load());
  }

  TEST_CASE_TEMPLATE(
      "wakes from many threads race the deadline and none hangs", Note, futex_note, portable_note) {
    Note n;
    std::atomic<bool> done{false};
    std::vector<std::thread> wakers;
    for (int i = 0; i < 2; ++i) {
      wakers.emplace_back([&] {
        while (!done.load()) {
          n.wake();
          std::this_thread::yield();
        }
      });
    }
    for (int i = 0; i < rounds(2000); ++i) {
      n.clear();
      n.sleep_until(monotonic_now() + i % 3 * 1000);
    }
    done.store(true);
    for (auto& t : wakers)
      t.join();
  }
}
