// A guest and its host: the time of a poll, what stays the thread's own, and ends in odd
// places.
#include "core/guest/host_loop.hpp"
#include "support/child.hpp"

#include <vigil/guest.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cerrno>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::clock;
using vigil::guest_runtime;
using vigil::wrong_place;

namespace {

// Longer than a poll lasts.
void compute() {
  const auto end = std::chrono::steady_clock::now() + 2ms;
  while (std::chrono::steady_clock::now() < end) {
  }
}

void wait_and_say() {
  struct says {
    ~says() { std::puts("unwound"); }
  } const at_end;

  vigil::sleep_for(1h);
}

}  // namespace

TEST_SUITE("guest: its host") {
  TEST_CASE("a poll ends with the stretch in which its time is over") {
    int stretches = 0;
    guest_runtime g;
    g.start([&] {
      for (int i = 0; i < 8; ++i) {
        vigil::go([&] {
          for (;;) {
            ++stretches;
            compute();
            vigil::this_fiber::yield();
          }
        });
      }
      vigil::sleep_for(1h);
    });
    for (int i = 0; i < 30; ++i) {
      const int before = stretches;
      REQUIRE(g.poll());
      CHECK(stretches - before <= 2);
      CHECK(is_readable(g));
    }
  }

  TEST_CASE("work that a poll leaves is never forgotten, after a wake-up from a thread either") {
    guest_runtime g;
    auto ch = vigil::make_channel<int>();
    constexpr int rounds = 100;
    g.start([&] {
      for (int i = 0; i < rounds; ++i) {
        static_cast<void>(ch.recv());
        compute();
        vigil::this_fiber::yield();
        vigil::this_fiber::yield();
      }
    });
    std::thread sender([&] {
      for (int i = 0; i < rounds; ++i)
        ch.send(i);
    });
    serve(g);
    sender.join();
  }

  TEST_CASE("after the end of a run the descriptor is quiet, until the next start") {
    guest_runtime g;
    for (int i = 0; i < 3; ++i) {
      g.start([] {
        vigil::after_func(1ms, [] {});
        vigil::this_fiber::yield();
      });
      CHECK(is_readable(g));
      while (g.poll())
        static_cast<void>(is_readable(g, -1));
      CHECK_FALSE(is_readable(g, 5));
    }
  }

  TEST_CASE("a poll inside a poll is refused, wherever it comes from") {
    class polls_at_its_end {
     public:
      polls_at_its_end(guest_runtime& g, int& refused) : guest_(&g), refused_(&refused) {}

      polls_at_its_end(polls_at_its_end&& other) noexcept
          : guest_(std::exchange(other.guest_, nullptr)), refused_(other.refused_) {}

      polls_at_its_end& operator=(polls_at_its_end&&) = delete;

      ~polls_at_its_end() {
        if (guest_ == nullptr) return;
        try {
          guest_->poll();
        } catch (const wrong_place&) {
          ++*refused_;
        }
      }

     private:
      guest_runtime* guest_;
      int* refused_;
    };

    guest_runtime g;
    int refused = 0;
    int ran = 0;
    g.start([&, local = polls_at_its_end(g, refused)] {
      const polls_at_its_end inside(g, refused);
      ++ran;
    });
    CHECK_FALSE(poll_all(g));
    CHECK(ran == 1);
    CHECK(refused == 1);  // the captures die once nothing runs: that poll finds the end
  }

  TEST_CASE("flags of floating-point exceptions and errno are the host's") {
    guest_runtime g;
    g.start([] {
      errno = EDOM;
      std::feclearexcept(FE_ALL_EXCEPT);
      vigil::sleep_for(1ms);
    });
    std::feclearexcept(FE_ALL_EXCEPT);
    std::feraiseexcept(FE_DIVBYZERO);
    errno = ENOENT;
    CHECK(g.poll());
    CHECK(errno == ENOENT);
    CHECK(std::fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO);
    std::feclearexcept(FE_ALL_EXCEPT);
    serve(g);
  }

  TEST_CASE("the thread gets its settings back when the last of its guests has ended") {
    const int before = ::prctl(PR_GET_TIMERSLACK);
    {
      std::optional<guest_runtime> a(std::in_place);
      guest_runtime b;
      a->start([] { vigil::sleep_for(1h); });
      b.start([] { vigil::sleep_for(1h); });
      CHECK(poll_all(*a));
      CHECK(poll_all(b));
      a.reset();
      CHECK(::prctl(PR_GET_TIMERSLACK) == 1);
      stack_t signals{};
      CHECK(::sigaltstack(nullptr, &signals) == 0);
      CHECK((signals.ss_flags & SS_DISABLE) == 0);
    }
    CHECK(::prctl(PR_GET_TIMERSLACK) == before);
  }

  TEST_CASE("a thread of the same number as the host is another thread") {
    std::optional<guest_runtime> g(std::in_place);
    std::thread first([&] {
      g->start([] {});
      CHECK_FALSE(poll_all(*g));
      g->start([] {});
    });
    first.join();
    std::thread second([&] {
      CHECK_THROWS_AS(g->poll(), wrong_place);
      g.reset();  // it has not begun
    });
    second.join();
  }

  TEST_CASE("child: the host forks" * doctest::skip()) {
    static guest_runtime g;
    g.start([] { vigil::sleep_for(1h); });
    poll_all(g);
    const pid_t child = ::fork();
    if (child == 0) std::exit(3);
    int status = 0;
    ::waitpid(child, &status, 0);
    std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) + 1 : 99);
  }

  TEST_CASE("child: a fiber of a static guest exits" * doctest::skip()) {
    static guest_runtime g;
    g.start([] { std::exit(5); });
    serve(g);
  }

  TEST_CASE("child: main returns before a static guest has ended" * doctest::skip()) {
    static guest_runtime g;
    g.start(&wait_and_say);
    poll_all(g);
  }

  TEST_CASE("child: a static guest is made after a run" * doctest::skip()) {
    vigil::run([] {});
    static guest_runtime g;
    g.start(&wait_and_say);
    poll_all(g);
    std::exit(6);
  }

  TEST_CASE("child: the thread of a static guest has ended" * doctest::skip()) {
    static guest_runtime g;
    std::thread([] {
      g.start(&wait_and_say);
      poll_all(g);
    }).join();
  }

  TEST_CASE("child: destroyed on another thread" * doctest::skip()) {
    auto g = std::make_unique<guest_runtime>();
    g->start([] { vigil::sleep_for(1h); });
    poll_all(*g);
    std::thread([&] { g.reset(); }).join();
  }

  TEST_CASE("child: the destructor finds an exception" * doctest::skip()) {
    guest_runtime g;
    g.start([] {
      try {
        vigil::sleep_for(1h);
      } catch (...) {
        throw std::runtime_error("at the end of the guest");
      }
    });
    poll_all(g);
  }

  TEST_CASE("exits, forks and exceptions at the end") {
    // An exit on a fiber's stack does not see what the test's own stack keeps.
    const std::vector<std::pair<const char*, const char*>> no_leaks{
        {"ASAN_OPTIONS", "detect_leaks=0"}};
    CHECK(WEXITSTATUS(run_child("child: the host forks").status) == 4);
    CHECK(WEXITSTATUS(run_child("child: a fiber of a static guest exits", no_leaks).status) == 5);
    child_result r = run_child("child: destroyed on another thread");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("destroyed while it runs, in a fiber or on a thread other than the host's"));
    r = run_child("child: the destructor finds an exception");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("at the end of the guest"));
  }

  TEST_CASE("a static guest is left alone at the end of the program, however early it was made") {
    const std::vector<std::pair<const char*, const char*>> no_leaks{
        {"ASAN_OPTIONS", "detect_leaks=0"}};
    child_result r = run_child("child: main returns before a static guest has ended", no_leaks);
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_FALSE(r.says("unwound"));
    r = run_child("child: a static guest is made after a run", no_leaks);
    CHECK_MESSAGE(WEXITSTATUS(r.status) == 6, r.output);
    CHECK_FALSE(r.says("unwound"));
    r = run_child("child: the thread of a static guest has ended", no_leaks);
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_FALSE(r.says("unwound"));
  }

  TEST_CASE("a guest that is an object of its thread ends with the thread") {
    static std::atomic<bool> unwound;
    unwound = false;
    std::thread([] {
      thread_local guest_runtime g;
      g.start([] {
        struct notes {
          ~notes() { unwound = true; }
        } const at_end;
        vigil::sleep_for(1h);
      });
      poll_all(g);
    }).join();
    CHECK(unwound.load());
  }

  TEST_CASE("the host does not disturb a run without it on another thread") {
    guest_runtime g;
    std::atomic<bool> has_begun{false};
    std::atomic<bool> may_end{false};
    std::thread other([&] {
      g.runtime().run([&] {
        has_begun.store(true);
        while (!may_end.load())
          vigil::sleep_for(1ms);
      });
    });
    while (!has_begun.load())
      std::this_thread::yield();
    CHECK_THROWS_AS(g.start([] {}), vigil::wrong_place);
    for (int i = 0; i < 200; ++i) {
      CHECK_FALSE(g.poll());
      std::this_thread::sleep_for(100us);  // so that the polls meet several of its sleeps
    }
    may_end.store(true);
    other.join();
    g.start([] {});
    CHECK_FALSE(poll_all(g));
  }
}
