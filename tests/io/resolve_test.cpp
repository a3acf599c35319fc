// io::resolve, with a getaddrinfo that takes as long as the test likes: this program's
// own, which the library calls instead of the C library's.
#include "core/machine/sanitizer.hpp"
#include "io/io_test.hpp"
#include "support/child.hpp"
#include "support/hidden_deadlock.hpp"

#include <vigil/channel.hpp>
#include <vigil/io/resolve.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include <boost/asio/connect.hpp>

#include <netdb.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace vigil::io_testing;
using vigil::io::resolve;

namespace {

// Look-ups of names that begin with "slow" wait here.
class gate {
 public:
  void pass() {
    std::unique_lock lock(lock_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --waiting_;
    changed_.notify_all();
  }

  void open() {
    const std::lock_guard guard(lock_);
    open_ = true;
    changed_.notify_all();
  }

  void close() {
    const std::lock_guard guard(lock_);
    open_ = false;
  }

  int waiting() {
    const std::lock_guard guard(lock_);
    return waiting_;
  }

  void await(int n) {
    vigil::blocking([this, n] {
      std::unique_lock lock(lock_);
      changed_.wait(lock, [&] { return waiting_ >= n; });
    });
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = true;
};

// Never destroyed: threads may be in it while the program ends.
gate& slow() {
  static gate& one = *new gate;
  return one;
}

std::atomic<int> looked_up{0};
std::atomic<bool> hears_signals{false};

// While it is true, a thread that has handed over a result waits before it frees the
// memory.
std::atomic<bool> keeps_results{false};

addrinfo* make_result(const char* service) {
  auto* const info = new addrinfo{};
  auto* const address = new sockaddr_in{};
  address->sin_family = AF_INET;
  address->sin_port = htons(static_cast<std::uint16_t>(std::atoi(service)));
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  info->ai_family = AF_INET;
  info->ai_socktype = SOCK_STREAM;
  info->ai_addrlen = sizeof *address;
  info->ai_addr = reinterpret_cast<sockaddr*>(address);
  return info;
}

}  // namespace

extern "C" int getaddrinfo(const char* host,
                           const char* service,
                           const addrinfo*,
                           addrinfo** result) {
  looked_up.fetch_add(1);
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD})
    if (::sigismember(&blocked, signal) == 0) hears_signals.store(true);
  if (std::strncmp(host, "slow", 4) == 0) slow().pass();
  if (std::strcmp(host, "nowhere") == 0) return EAI_NONAME;
  *result = make_result(service);
  return 0;
}

extern "C" void freeaddrinfo(addrinfo* info) {
  keeps_results.wait(true);
  delete reinterpret_cast<sockaddr_in*>(info->ai_addr);
  delete info;
}

TEST_SUITE("io::resolve") {
  // This case comes first: no abandoned look-up is under way yet.
  TEST_CASE("32 at a time; the others wait their turn, and an abandoned name is not looked up") {
    in_runtime({.workers = {1}}, [] {
      slow().close();
      std::vector<vigil::fiber<std::size_t>> lookups;
      for (int i = 0; i < 40; ++i)
        lookups.push_back(vigil::spawn([] { return resolve("slow", "80").size(); }));
      slow().await(32);
      CHECK(error_of([] { resolve("late", "80", use_fiber.within(1ms)); }) ==
            asio::error::timed_out);
      // A stop or a context does not wait for the turn either.
      auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      auto stopped = vigil::spawn([] { resolve("late", "80"); });
      auto under = vigil::spawn([ctx = ctx] { resolve("late", "80", use_fiber.under(ctx)); });
      vigil::this_fiber::yield();  // one worker: both wait now
      stopped.request_stop();
      cancel();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      CHECK_THROWS_AS(under.join(), vigil::cancelled);
      CHECK(looked_up.load() == 32);
      slow().open();
      for (auto& l : lookups)
        CHECK(l.join() == 1);
      CHECK(looked_up.load() == 40);
    });
  }

  TEST_CASE("a name becomes addresses that can be connected to, an unknown one an error") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::ip::tcp::acceptor acceptor(vigil::io::io_context(),
                                       {asio::ip::address_v4::loopback(), 0});
      const std::string port = std::to_string(acceptor.local_endpoint().port());
      const auto found = resolve("somewhere", port);
      REQUIRE(found.size() == 1);
      CHECK(found.begin()->host_name() == "somewhere");
      asio::ip::tcp::socket s(vigil::io::io_context());
      CHECK(asio::async_connect(s, found, use_fiber) == acceptor.local_endpoint());
      CHECK(error_of([] { resolve("nowhere", "80"); }) == asio::error::host_not_found);
      const auto [error, none] = resolve("nowhere", "80", asio::as_tuple(use_fiber));
      CHECK(error == asio::error::host_not_found);
      CHECK(none.empty());
    });
  }

  TEST_CASE("a deadline, a context and a stop end the wait, not the look-up") {
    in_runtime({.workers = {1, 2}}, [] {
      slow().close();
      const auto start = vigil::clock::now();
      CHECK(error_of([] { resolve("slow 1", "80", use_fiber.within(2ms)); }) ==
            asio::error::timed_out);
      CHECK(since(start) >= 2ms);
      CHECK(std::get<0>(resolve(
                "slow 2", "80", asio::as_tuple(use_fiber.until(vigil::clock::now() + 1ms)))) ==
            asio::error::timed_out);
      auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      auto canceller = vigil::after_func(1ms, [cancel = cancel] { cancel(); });
      CHECK_THROWS_AS(resolve("slow 3", "80", use_fiber.under(ctx)), vigil::cancelled);
      auto waits = vigil::spawn([] { resolve("slow 4", "80"); });
      slow().await(1);
      waits.request_stop();
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      // Other names are looked up meanwhile.
      CHECK(resolve("quick", "80").size() == 1);
      CHECK(slow().waiting() > 0);
      slow().open();
    });
  }

  TEST_CASE("the run ends beside an abandoned look-up, and outlives nothing") {
    in_runtime({.workers = {1, 2}}, [] {
      slow().close();
      vigil::go([] { resolve("slow", "80"); });
      slow().await(1);
    });
    CHECK(slow().waiting() > 0);  // still there
    slow().open();
  }

  TEST_CASE("result and deadline at the same instant") {
    in_runtime({.workers = {1, 2}}, [] {
      seeded dice(11);
      for (int i = 0; i < rounds(400); ++i) {
        const auto [error, result] = resolve(
            "quick",
            "80",
            asio::as_tuple(use_fiber.within(std::chrono::nanoseconds(dice.below(100'000)))));
        REQUIRE((!error || error == asio::error::timed_out));
        REQUIRE(result.size() == (error ? 0 : 1));
      }
    });
  }

  TEST_CASE("its threads take no signals: these are for the threads of the program") {
    in_runtime({.workers = {1, 2}}, [] {
      hears_signals.store(false);
      CHECK(resolve("quick", "80").size() == 1);
      CHECK(!hears_signals.load());
      sigset_t blocked;
      ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      CHECK(::sigismember(&blocked, SIGUSR1) == 0);  // the caller's thread hears them
    });
  }

  TEST_CASE("child: forks after a look-up whose thread is still there" * doctest::skip()) {
    const auto look_up = [] {
      return vigil::run({.workers = 2},
                        [] { return static_cast<int>(resolve("quick", "80").size()); });
    };
    keeps_results.store(true);
    const int found = look_up();
    // The thread may come as far as freeaddrinfo, and no further.
    const pid_t child = ::fork();
    if (child == 0) {
      keeps_results.store(false);
      ::_exit(look_up() == found ? 7 : 8);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    std::printf("its child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    keeps_results.store(false);
    keeps_results.notify_all();
  }

  // ThreadSanitizer starts no thread in a child of a process that had several.
  TEST_CASE("once its run has ended a fork leaves a child that may run a runtime" *
            doctest::skip(VIGIL_TSAN != 0)) {
    const child_result r = run_child("child: forks after a look-up whose thread is still there");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("its child: 7"), r.output);
  }

  TEST_CASE("child: is stuck as soon as it has a result" * doctest::skip()) {
    keeps_results.store(true);
    try {
      vigil::run({.workers = 1}, [] {
        resolve("quick", "80");
        vigil::make_channel<int>().recv();
      });
    } catch (const vigil::deadlock&) {
      std::printf("a deadlock\n");
      std::fflush(stdout);
      ::_exit(0);
    }
  }

  // ThreadSanitizer has a thread of its own, so no deadlock is certain beside it.
  TEST_CASE("once it has given its result its thread leaves a deadlock certain" *
            doctest::skip(VIGIL_TSAN != 0)) {
    if (is_deadlock_hidden()) return;
    const child_result r = run_child("child: is stuck as soon as it has a result");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("a deadlock"), r.output);
  }

  TEST_CASE("on virtual time the clock stands still meanwhile") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto sleeper = vigil::spawn([] { vigil::sleep_for(1h); });
      CHECK(resolve("quick", "80").size() == 1);
      CHECK(since(start) == 0s);
    });
    CHECK_THROWS_AS(resolve("quick", "80"), vigil::wrong_place);
  }
}
