// The watch that needs no futex, in place of the default one. With one worker it is the
// only thing that ever waits. A build with -Dwatch=portable uses it everywhere.
#include "core/sched/idle/watch.hpp"
#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <csignal>
#include <memory>
#include <thread>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::sleep_for;
using vigil::spawn;
using vigil::detail::portable_watch;
using vigil::detail::portable_words;

namespace {

template <class F>
void over_portable(const vigil::options& settings, F body) {
  for (const unsigned n : {1U, 2U, 4U}) {
    INFO("workers: ", n);
    vigil::detail::scheduler_options o = vigil::detail::checked(settings);
    o.workers = n;
    vigil::detail::runtime_core core(o, std::make_unique<portable_watch>());
    auto main = [&] {
      core.sched.outside.add();  // plain threads
      body();
      core.sched.outside.end();
    };
    core.sched.run(main);
  }
}

}  // namespace

TEST_SUITE("the portable watch") {
  TEST_CASE("sleeps end, never early") {
    over_portable({}, [] {
      std::vector<vigil::fiber<>> fibers;
      for (std::uint64_t i = 1; i <= 4; ++i) {
        fibers.push_back(spawn([i] {
          seeded dice(i);
          for (int round = 0; round < rounds(100); ++round) {
            const std::chrono::nanoseconds nap(1 + dice.below(200'000));
            const auto start = vigil::clock::now();
            sleep_for(nap);
            REQUIRE(since(start) >= nap);
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
    });
  }

  TEST_CASE("an earlier deadline and work from a plain thread reach it") {
    over_portable({}, [] {
      auto late = vigil::after_func(1h, [] {});
      auto fired = vigil::make_channel<int>(1);
      auto t = vigil::after_func(2h, [fired] { static_cast<void>(fired.try_send(1)); });
      auto waits = spawn([] { sleep_for(1h); });
      std::thread outside([&, &sched = *vigil::detail::current_scheduler()] {
        wait_until_at_rest(sched);
        t.reset(1ms);
        waits.request_stop();
      });
      CHECK(fired.recv() == 1);
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      outside.join();
      late.stop();
    });
  }

  TEST_CASE("no wake-up between two threads is lost, however they meet") {
    over_portable({}, [] {
      auto there = vigil::make_channel<int>();
      auto back = vigil::make_channel<int>();
      const int all = rounds(2000);
      std::thread outside([&] {
        for (int i = 0; i < all; ++i)
          back.send(there.recv().value() + 1);
      });
      for (int i = 0; i < all; ++i) {
        there.send(i);
        REQUIRE(back.recv() == i + 1);
      }
      outside.join();
    });
  }

  TEST_CASE("a signal stops the run, though a handler may take no lock") {
    portable_words::signals_may_come();
    vigil::options settings;
    settings.stop_on = {SIGUSR1};
    settings.grace = 0s;
    over_portable(settings, [] {
      std::thread outside([&sched = *vigil::detail::current_scheduler()] {
        wait_until_at_rest(sched);
        ::raise(SIGUSR1);
      });
      CHECK_THROWS_AS(sleep_for(1h), vigil::stopped);
      outside.join();
    });
  }

  TEST_CASE("a worker that slept before signals could come polls from then on") {
    vigil::detail::futex_word word{0};
    std::thread sleeper([&] {
      while (word.load() == 0)
        portable_words::wait(word, 0, vigil::detail::never);
    });
    portable_words::signals_may_come();
    // As in a signal handler: nobody is notified.
    word.store(1);
    portable_words::wake_one(word, vigil::detail::waker::signal_handler);
    sleeper.join();
  }
}
