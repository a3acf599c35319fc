#include "core/machine/sanitizer.hpp"
#include "core/runtime/runtime_test.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/process/process_signals.hpp"
#include "support/at_rest.hpp"
#include "support/note.hpp"
#include "support/send_to_process.hpp"

#include <csignal>
#include <cstdio>

using namespace vigil::testing_support;

namespace {

// Runs on virtual time; after 1 s `ends` begins the end of the run, which has a long
// grace. Three signals come too early to end it, the fourth ends it. Returns the time at
// which a fiber was stopped.
template <class F>
std::chrono::nanoseconds ended_by_signals(F ends) {
  vigil::testing::virtual_options how;
  how.runtime.stop_on = {SIGUSR1, SIGUSR2};
  how.runtime.grace = 24h;
  std::chrono::nanoseconds stopped_at{};
  const auto program = [&] {
    const auto start = vigil::clock::now();
    vigil::go([&, start] {
      try {
        sleep_for(1000h);
      } catch (const vigil::stopped&) {
        stopped_at = vigil::clock::now() - start;
        throw;
      }
    });
    vigil::go([] {
      sleep_for(1s);
      for (const auto& [signal, pause] : {std::pair{SIGUSR1, 100ms},
                                          std::pair{SIGUSR2, 99ms},
                                          std::pair{SIGUSR1, 1ms},
                                          std::pair{SIGUSR2, 1ms}}) {
        send_to_process(signal);
        sleep_for(pause);
      }
    });
    sleep_for(1s);
    ends();
  };
  try {
    vigil::testing::run_virtual(how, program);
  } catch (const vigil::cancelled&) {
  }
  return stopped_at;
}

}  // namespace

TEST_SUITE("stop_on") {
  TEST_CASE("child: serves until a signal" * doctest::skip()) {
    struct guard {
      ~guard() { std::puts("unwound"); }
    };

    vigil::options o;
    o.workers = 2;
    o.stop_on = {SIGINT, SIGTERM};
    o.grace = 0s;
    const int result = vigil::run(o, [] {
      const guard here;
      vigil::go([] {
        const guard there;
        sleep_for(1h);
      });
      sleep_for(2ms);
      send_to_process(SIGTERM);
      sleep_for(1h);
    });
    std::printf("ended with %d\n", result);
  }

  TEST_CASE("a signal ends the program cleanly by unwinding") {
    const child_result r = run_child("child: serves until a signal");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("ended with 143"));
    const auto first = r.output.find("unwound");
    CHECK(first != std::string::npos);
    CHECK(r.output.find("unwound", first + 1) != std::string::npos);
  }

  TEST_CASE("a signal stops a busy program and an idle one, and its handler is put back") {
    // ThreadSanitizer holds a signal back until its thread calls into libc, which neither
    // a yielding fiber nor a futex wait does.
    if (VIGIL_TSAN) return;
    for (const unsigned workers : {1u, 2u}) {
      struct sigaction before {};

      struct sigaction after {};

      ::sigaction(SIGUSR1, nullptr, &before);
      vigil::options o;
      o.workers = workers;
      o.stop_on = {SIGUSR1};
      o.grace = 0s;
      vigil::run(o, [] {
        vigil::after_func(1ms, [] { send_to_process(SIGUSR1); });
        for (;;)
          vigil::this_fiber::yield();
      });
      vigil::run(o, [] {
        vigil::after_func(1ms, [] { send_to_process(SIGUSR1); });
        sleep_for(1h);
      });
      std::atomic<vigil::detail::scheduler*> up{nullptr};
      std::thread sender([&] {
        up.wait(nullptr);
        wait_until_at_rest(*up.load());
        send_to_process(SIGUSR1);
      });
      vigil::run(o, [&] {
        up.store(vigil::detail::current_scheduler());
        up.notify_one();
        sleep_for(1h);
      });
      sender.join();
      ::sigaction(SIGUSR1, nullptr, &after);
      CHECK(bool{before.sa_handler == after.sa_handler});
    }
  }

  TEST_CASE("the grace period begins with the signal") {
    vigil::options o;
    o.workers = 2;
    o.stop_on = {SIGUSR1};
    o.grace = 1h;  // over as soon as the others have ended
    bool finished = false;
    vigil::run(o, [&] {
      auto f = spawn([&] {
        while (!vigil::background().is_done())
          sleep_for(100us);
        sleep_for(1ms);
        finished = true;
      });
      send_to_process(SIGUSR1);
      f.join();
    });
    CHECK(finished);
  }

  TEST_CASE("a second signal ends the grace period") {
    for (const bool returns : {false, true}) {
      vigil::options o;
      o.workers = 2;
      o.stop_on = {SIGUSR1};
      o.grace = 24h;
      std::atomic<int> stopped{0};
      vigil::run(o, [&] {
        for (int i = 0; i < 2; ++i) {
          vigil::go([&, i] {
            try {
              if (i == 0) send_to_process(SIGUSR1);
              while (!vigil::background().is_done())
                sleep_for(100us);
              // The distance in time tells it from a relay's repetition of the first.
              sleep_for(200ms);
              if (i == 0) send_to_process(SIGUSR1);
              sleep_for(24h);
            } catch (const vigil::stopped&) {
              stopped.fetch_add(1);
              throw;
            }
          });
        }
        if (!returns) sleep_for(24h);
        while (!vigil::background().is_done())
          sleep_for(100us);
        // Now the main fiber itself waits for the others to end.
      });
      CHECK(stopped.load() == 2);
    }
  }

  TEST_CASE("a signal that comes as the grace period begins leaves it, a later one ends it") {
    enum class by { signal, request, main_returns };
    for (const by how : {by::signal, by::request, by::main_returns}) {
      NOTE("static_cast<int>(how): ", static_cast<int>(how));
      const std::chrono::nanoseconds stopped_at = ended_by_signals([how] {
        if (how == by::signal) {
          // Both at once, as from a terminal that goes away.
          send_to_process(SIGUSR2);
          send_to_process(SIGUSR1);
        }
        if (how == by::request) vigil::runtime::current().request_stop();
        if (how != by::main_returns) sleep_for(24h);
      });
      CHECK(stopped_at == 1s + 200ms);
    }
  }

  TEST_CASE("two runtimes that stop on the same signal both do") {
    std::atomic<int> up{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        vigil::options o;
        o.workers = 1;
        o.stop_on = {SIGUSR1};
        o.grace = 0s;
        vigil::run(o, [&] {
          up.fetch_add(1);
          sleep_for(1h);
        });
      });
    }
    while (up.load() != 2)
      std::this_thread::yield();
    send_to_process(SIGUSR1);
    for (auto& t : threads)
      t.join();
  }
}

TEST_SUITE("signal watcher") {
  using vigil::detail::scheduler;
  using vigil::detail::signal_watcher;

  struct listener {
    std::atomic<int> usr1{0};
    std::atomic<int> usr2{0};
    signal_watcher watcher;

    listener() {
      watcher.signals = std::uint64_t{1} << SIGUSR1 | std::uint64_t{1} << SIGUSR2;
      watcher.argument = this;
      watcher.receive = [](int signal, void* self) noexcept {
        auto& l = *static_cast<listener*>(self);
        (signal == SIGUSR1 ? l.usr1 : l.usr2).fetch_add(1);
      };
    }
  };

  TEST_CASE("hears of its signals from the moment it was added until it is removed") {
    in_runtime({.workers = {1, 2}}, [] {
      scheduler& s = *vigil::detail::current_scheduler();
      listener l;
      vigil::detail::process_watch_signals(s, l.watcher);
      send_to_process(SIGUSR1);
      while (l.usr1.load() != 1)
        sleep_for(100us);
      send_to_process(SIGUSR2);
      while (l.usr2.load() != 1)
        sleep_for(100us);
      CHECK(l.usr1.load() == 1);
      listener second;
      vigil::detail::process_watch_signals(s, second.watcher);
      send_to_process(SIGUSR1);
      while (l.usr1.load() != 2 || second.usr1.load() != 1)
        sleep_for(100us);
      s.signals.remove(l.watcher);
      send_to_process(SIGUSR1);
      while (second.usr1.load() != 2)
        sleep_for(100us);
      CHECK(l.usr1.load() == 2);
      s.signals.remove(second.watcher);
    });
  }

  TEST_CASE("may claim a parked fiber's wait") {
    in_runtime({.workers = {1, 2}}, [] {
      scheduler& s = *vigil::detail::current_scheduler();
      struct waiting {
        vigil::detail::waiter* who = nullptr;
        vigil::detail::ticket which = 0;
      } w;
      signal_watcher watcher;
      watcher.signals = std::uint64_t{1} << SIGUSR1;
      watcher.argument = &w;
      watcher.receive = [](int, void* argument) noexcept {
        auto& target = *static_cast<waiting*>(argument);
        if (target.who->claim(target.which, vigil::detail::outcome::value)) {
          target.who->deliver();
        }
      };
      vigil::detail::fiber& self = *vigil::detail::current_fiber();
      w.who = &self.own_waiter;
      w.which = self.own_waiter.open(true);
      vigil::detail::process_watch_signals(s, watcher);
      vigil::go([] { ::raise(SIGUSR1); });
      const auto how = vigil::detail::wait(
          self, w.which, vigil::detail::wait_reason::signal, vigil::detail::no_limit, true);
      CHECK(how == vigil::detail::outcome::value);
      s.signals.remove(watcher);
    });
  }

  TEST_CASE("holds back the deadlock report while it is there") {
    vigil::options o;
    o.workers = 2;
    o.deadlock = vigil::on_deadlock::fatal;
    vigil::run(o, [] {
      scheduler& s = *vigil::detail::current_scheduler();
      listener l;
      vigil::detail::process_watch_signals(s, l.watcher);
      auto f = spawn([] { sleep_for(std::chrono::nanoseconds::max()); });
      std::thread outside([&] {
        wait_until_at_rest(s);
        f.request_stop();
      });
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      outside.join();
      s.signals.remove(l.watcher);
    });
  }

  // 32 and 33 are the C library's own.
  TEST_CASE("a signal that cannot be caught is refused") {
    using vigil::detail::checked_signal;
    for (const int signal : {-1, 0, SIGKILL, SIGSTOP, SIGSEGV, SIGFPE, 32, 33, 64, 100})
      CHECK_THROWS_AS(checked_signal("here", signal), std::invalid_argument);
    CHECK(checked_signal("here", SIGHUP) == std::uint64_t{1} << SIGHUP);
    CHECK(checked_signal("here", 63) == std::uint64_t{1} << 63);
  }
}
