// Real time, several workers: fast tickers, and timers beside busy fibers. No delay is
// bounded from above.
#include "core/time/timer_stress.hpp"

#include <array>
#include <cstdlib>

#include <unistd.h>

using namespace vigil::testing_support;

TEST_SUITE("timers with channels in real time") {
  // Go: TestMultiWakeupTicker.
  TEST_CASE("a fast ticker for many receivers: each tick once, on the grid, dropped ones counted") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      constexpr nanoseconds period = 1us;
      ticker t(period);
      const instant first = t.deadline();
      log_of_values log;
      in_fibers(8, [&](int) {
        for (int round = 0; round < many(1'000); ++round) {
          vigil::select(on_recv(t.channel(),
                                [&](std::optional<instant> v) {
                                  REQUIRE(vigil::clock::now() >= *v);
                                  log.add(*v);
                                }),
                        on_recv(after(1ms)));
        }
      });
      REQUIRE(t.stop());
      const auto got = log.sorted();
      CHECK(all_differ(got));
      REQUIRE_FALSE(got.empty());
      CHECK(got.front() == first);
      for (const instant at : got)
        REQUIRE((at - first) % period == 0ns);
      // All up to the last look; that look may have dropped a few more.
      CHECK(static_cast<std::int64_t>(got.size() + t.missed()) >=
            (got.back() - first) / period + 1);
    });
  }

  // Go: period arithmetic, its example, slow receiver.
  TEST_CASE("received ticks, missed ones and the next one account for all") {
    in_runtime({.workers = {1, 2}}, [] {
      constexpr nanoseconds period = 700ns;
      ticker t(period);
      const instant first = t.deadline();
      std::atomic<std::int64_t> received{0};
      in_fibers(4, [&](int i) {
        for (int round = 0; round < many(1'000); ++round) {
          if ((round + i) % 3 == 0) {
            if (t.channel().try_recv()) received.fetch_add(1);
          } else {
            t.channel().recv();
            received.fetch_add(1);
          }
        }
      });
      // Nobody receives any more: the current deadline is the next one.
      CHECK((t.deadline() - first) / period ==
            received.load() + static_cast<std::int64_t>(t.missed()));
    });
  }

  // Go: TestTickerStress.
  TEST_CASE("a ticker of a nanosecond ticks beside a busy program") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> done{false};
      auto busy = vigil::spawn([&] {
        while (!done.load()) {
          sleep_for(1ns);
          static_cast<void>(std::make_unique<std::array<char, 4096>>());
        }
      });
      ticker t(1ns);
      instant last{};
      for (int i = 0; i < rounds(2'000); ++i) {
        const instant at = t.channel().recv().value();
        REQUIRE(at > last);
        last = at;
      }
      done.store(true);
      busy.join();
    });
  }

  // go#16608.
  // Go: TestTimerFairness.
  TEST_CASE("a select between senders that are always ready comes to its timer") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto values = vigil::make_channel<int>();
      const auto end = vigil::make_channel<void>();
      std::vector<vigil::fiber<>> senders;
      for (int i = 0; i < 2; ++i) {
        senders.push_back(vigil::spawn([&] {
          while (vigil::select(vigil::on_send(values, 1), on_recv(end)) == 0) {
          }
        }));
      }
      const auto enough = after(5ms);
      while (vigil::select(on_recv(values), on_recv(enough)) == 0) {
      }
      const ticker beat(1ms);
      for (int ticks = 0; ticks < 5;)
        vigil::select(on_recv(values), on_recv(beat.channel(), [&] { ++ticks; }));
      end.close();
      for (auto& f : senders)
        f.join();
    });
  }

  // Go: TestTimerFairness2.
  TEST_CASE("fibers that send, receive and make system calls all come to their timers") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto values = vigil::make_channel<int>();
      in_fibers(2, [&](int) {
        const auto enough = after(5ms);
        char none;
        bool on = true;
        while (on) {
          static_cast<void>(::read(0, &none, 0));
          vigil::select(
              vigil::on_send(values, 1), on_recv(values), on_recv(enough, [&] { on = false; }));
        }
      });
    });
  }
}
