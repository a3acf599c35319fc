// The signal of inspect::install(), and the program's own use of the same one. Each case
// that changes what the process does with it has a process of its own.
#include "core/machine/sanitizer.hpp"
#include "inspect/inspect_helpers.hpp"
#include "inspect/leaks_helpers.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/leaks.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

std::atomic<int> heard_first{0};
std::atomic<int> heard_last{0};
struct sigaction next_handler;

void hears_and_passes_on(int signal, siginfo_t* info, void* state) {
  heard_last.fetch_add(1);
  next_handler.sa_sigaction(signal, info, state);
}

void check_child(const char* name) {
  const child_result child = run_child(name);
  NOTE(child.output);
  CHECK(child.succeeded());
}

}  // namespace

TEST_SUITE("passed signals") {
  TEST_CASE("child: a handler passes the signal on to the one before it" * doctest::skip()) {
    std::signal(SIGUSR1, [](int) { heard_first.fetch_add(1); });
    const vigil::inspect::install_options by_usr1{.running_signal = SIGUSR1, .addresses = false};
    vigil::inspect::install(by_usr1);
    struct sigaction theirs = {};
    theirs.sa_sigaction = &hears_and_passes_on;
    theirs.sa_flags = SA_SIGINFO;
    REQUIRE(::sigaction(SIGUSR1, &theirs, &next_handler) == 0);
    std::raise(SIGUSR1);
    CHECK(heard_last.load() == 1);
    CHECK(heard_first.load() == 1);
    vigil::inspect::install(by_usr1);
    std::raise(SIGUSR1);
    CHECK(heard_last.load() == 2);
    CHECK(heard_first.load() == 2);
  }

  TEST_CASE("a handler may stand between two calls of install" * doctest::skip(VIGIL_TSAN)) {
    check_child("child: a handler passes the signal on to the one before it");
  }

  TEST_CASE("child: a handler blocks another signal" * doctest::skip()) {
    static std::atomic<bool> is_inside{false};
    static std::atomic<bool> came_inside{false};
    std::signal(SIGUSR2, [](int) {
      heard_last.fetch_add(1);
      came_inside.store(is_inside.load());
    });
    struct sigaction theirs = {};
    theirs.sa_handler = [](int) {
      is_inside.store(true);
      std::raise(SIGUSR2);
      is_inside.store(false);
    };
    sigaddset(&theirs.sa_mask, SIGUSR2);
    REQUIRE(::sigaction(SIGUSR1, &theirs, nullptr) == 0);
    vigil::inspect::install({.running_signal = SIGUSR1, .addresses = false});
    std::raise(SIGUSR1);
    CHECK(heard_last.load() == 1);
    CHECK_FALSE(came_inside.load());
  }

  TEST_CASE("the mask of the program's handler holds" * doctest::skip(VIGIL_TSAN)) {
    check_child("child: a handler blocks another signal");
  }

  // Ours is merged with one that is pending already.
  TEST_CASE("child: a running fiber has the signal pending" * doctest::skip()) {
    std::signal(SIGUSR1, [](int) { heard_first.fetch_add(1); });
    vigil::inspect::install({.running_signal = SIGUSR1, .addresses = false});
    real_options setup;
    setup.workers = {2};
    in_runtime(setup, [] {
      std::atomic<bool> is_deaf{false};
      std::atomic<bool> may_hear{false};
      pthread_t thread{};
      auto spins = vigil::spawn([&] {
        sigset_t usr1;
        sigemptyset(&usr1);
        sigaddset(&usr1, SIGUSR1);
        ::pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
        thread = ::pthread_self();
        is_deaf.store(true);
        while (!may_hear.load()) {
        }
        ::pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
      });
      while (!is_deaf.load())
        vigil::this_fiber::yield();
      ::pthread_kill(thread, SIGUSR1);
      std::thread soon([&may_hear] {
        // Real time: so that the dump asks before; the case holds in any order.
        std::this_thread::sleep_for(20ms);
        may_hear.store(true);
      });
      static_cast<void>(inspected());
      soon.join();
      spins.join();
      CHECK(heard_first.load() == 1);
    });
  }

  TEST_CASE("a pending signal is heard, even if it answers for ours" * doctest::skip(VIGIL_TSAN)) {
    check_child("child: a running fiber has the signal pending");
  }

  TEST_CASE("child: the system keeps no word with a signal" * doctest::skip()) {
    const rlimit none{0, 0};
    REQUIRE(::setrlimit(RLIMIT_SIGPENDING, &none) == 0);
    vigil::inspect::install({.running_signal = SIGUSR1, .addresses = false});
    in_runtime({}, [] {
      const auto never = vigil::make_channel<int>();
      auto waits = vigil::spawn([never] { static_cast<void>(never.recv()); });
      vigil::this_fiber::yield();
      static_cast<void>(inspected());
      const vigil::inspect::stuck_report r = find_stuck();
      CHECK(r.why_none_certain == "");
      CHECK(r.certain.empty());
      never.close();
      waits.join();
    });
    // As one that comes after its question was taken back.
    std::raise(SIGUSR1);
  }

  // Its default would end the process.
  TEST_CASE("a signal whose sender the system has forgotten is known" * doctest::skip(VIGIL_TSAN)) {
    check_child("child: the system keeps no word with a signal");
  }

  TEST_CASE("child: a recording begins before install" * doctest::skip()) {
    vigil::inspect::record_on({.timer_late = 1h});
    vigil::inspect::install();
    in_runtime({}, [] {
      vigil::blocking([] {});
      CHECK(find_stuck().why_none_certain == "");
    });
  }

  TEST_CASE("threads of the library that were there before install can be stopped" *
            doctest::skip(VIGIL_TSAN)) {
    check_child("child: a recording begins before install");
  }

#if defined(__x86_64__)
  // A channel's only handle is in a register of the main thread.
  TEST_CASE("child: one descriptor is free" * doctest::skip()) {
    static vigil::channel<int>* const kept = new vigil::channel<int>(vigil::make_channel<int>());
    static std::atomic<bool> is_ready{false};
    static std::atomic<bool> is_held{false};
    vigil::inspect::install();
    std::thread asks([] {
      vigil::options o;
      o.workers = 1;
      o.stuck_limit = 0s;
      vigil::run(o, [] {
        vigil::go([] {
          auto made = vigil::make_channel<int>();
          vigil::go([made] { static_cast<void>(made.recv()); });
          *kept = std::move(made);
        });
        vigil::this_fiber::yield();
        vigil::this_fiber::yield();
        is_ready.store(true);
        while (!is_held.load())
          vigil::this_fiber::yield();
        const rlimit few{64, 64};
        ::setrlimit(RLIMIT_NOFILE, &few);
        int last = -1;
        for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY)) >= 0;)
          last = fd;
        ::close(last);
        bool is_wrong = false;
        for (int i = 0; i < 20; ++i)
          is_wrong = is_wrong || !vigil::inspect::find_stuck_fibers().certain.empty();
        ::_exit(is_wrong ? 1 : 0);
      });
    });
    while (!is_ready.load()) {
    }
    auto* const word = reinterpret_cast<std::uintptr_t*>(kept);
    std::uintptr_t held = *word;
    *word = 0;
    is_held.store(true);
    for (;;)
      asm volatile("mov $1000000, %%rcx\n1: dec %%rcx\n jnz 1b" : "+a"(held) : : "rcx", "memory");
  }

  TEST_CASE("a thread whose state cannot be read is stopped like others" *
            doctest::skip(VIGIL_TSAN || VIGIL_ASAN)) {
    check_child("child: one descriptor is free");
  }
#endif
}
