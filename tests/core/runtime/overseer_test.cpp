// The overseer: fibers that take turns wake no worker at each turn, and what a worker in
// user code has left to itself still reaches another one.
#include "core/sched/overseer/overseer.hpp"

#include "core/runtime/with_workers.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::testing_support::with_workers;

namespace {

void take_turns(int rounds) {
  const auto there = vigil::make_channel<int>();
  const auto back = vigil::make_channel<int>();
  auto other = vigil::spawn([&] {
    for (const int n : there)
      back.send(n);
  });
  for (int i = 0; i < rounds; ++i) {
    there.send(i);
    static_cast<void>(back.recv());
  }
  there.close();
  other.join();
}

vigil::detail::idle_workers& idle() {
  return vigil::detail::current_scheduler()->idle();
}

bool overseer_looks() {
  return idle().overseen.looks();
}

// Returns when something was left to this worker while another one slept.
void until_the_overseer_looks() {
  idle().count_as_traffic();
  while (!overseer_looks())
    take_turns(20);
}

TEST_SUITE("overseer") {
  TEST_CASE("two fibers that take turns do not wake another worker at each turn") {
    vigil::run(with_workers(2), [] {
      constexpr int rounds = 50'000;
      constexpr std::uint64_t limit = rounds / 4;
      const auto before = vigil::stats().wake_calls;
      take_turns(rounds);
      CHECK(vigil::stats().wake_calls - before < limit);
    });
  }

  TEST_CASE("a fiber started while the overseer looks runs beside one that computes") {
    for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
      vigil::run(with_workers(workers), [] {
        for (int round = 0; round < 20; ++round) {
          until_the_overseer_looks();
          std::atomic<bool> ran{false};
          auto other = vigil::spawn([&ran] { ran.store(true); });
          while (!ran.load()) {  // never gives up its worker
          }
          other.join();
        }
      });
    }
  }

  TEST_CASE("a value handed over while the overseer looks is taken beside one that computes") {
    vigil::run(with_workers(2), [] {
      const auto c = vigil::make_channel<int>();
      std::atomic<int> got{0};
      auto other = vigil::spawn([&] {
        for (const int n : c)
          got.store(n);
      });
      for (int round = 1; round <= 20; ++round) {
        until_the_overseer_looks();
        c.send(round);
        while (got.load() != round) {
        }
      }
      c.close();
      other.join();
    });
  }

  TEST_CASE("a deadline that is left while the overseer looks is kept beside one that computes") {
    vigil::run(with_workers(2), [] {
      for (int round = 0; round < 20; ++round) {
        until_the_overseer_looks();
        std::atomic<bool> fired{false};
        vigil::after_func(1ms, [&fired] { fired.store(true); });
        while (!fired.load()) {
        }
      }
    });
  }

  TEST_CASE("each of many computations gets a worker of its own") {
    vigil::run(with_workers(4), [] {
      for (int round = 0; round < 10; ++round) {
        until_the_overseer_looks();
        std::atomic<int> running{0};
        vigil::group all;
        for (int i = 0; i < 4; ++i) {
          all.go([&] {
            running.fetch_add(1);
            while (running.load() != 4) {
            }
          });
        }
        all.wait();
      }
    });
  }

  TEST_CASE("a deadline that has passed is still left at the second look, whoever switches") {
    vigil::run(with_workers(2), [] {
      vigil::detail::scheduler& s = *vigil::detail::current_scheduler();
      bool at_first = false;
      bool again = false;
      // Once more if the other worker has got up meanwhile: beside one that looks nothing
      // is left.
      for (std::uint64_t seen = 0; seen == 0 || seen != s.idle().wake_count();) {
        while (s.idle().asleep() == 0 || s.idle().looking() != 0) {
        }
        seen = s.idle().wake_count();
        vigil::detail::left_work left(s);
        const vigil::detail::nanos now = vigil::detail::monotonic_now();
        const vigil::detail::nanos deadline = s.board.next_deadline.exchange(now - 1);
        at_first = left.look(now).still;
        vigil::detail::current_worker()->counters.switches.add();
        again = left.look(now).still;
        s.board.next_deadline.store(deadline);
      }
      CHECK_FALSE(at_first);
      CHECK(again);
    });
  }

  TEST_CASE("it rests when nothing is left, and looks no more") {
    vigil::run(with_workers(2), [] {
      until_the_overseer_looks();
      // Real time, in which its looks go by; ever longer, so that one of them falls into
      // a sleep whatever the load.
      for (auto pause = 1ms; overseer_looks(); pause *= 2)
        vigil::sleep_for(pause);
      const auto looks = vigil::stats().overseer_looks;
      CHECK(looks > 0);
      vigil::sleep_for(20ms);  // some forty looks
      CHECK(vigil::stats().overseer_looks == looks);
    });
  }

  TEST_CASE("with one worker it has nothing to look at") {
    vigil::run(with_workers(1), [] {
      take_turns(1'000);
      vigil::sleep_for(1ms);
      CHECK(vigil::stats().overseer_looks == 0);
    });
  }
}

}  // namespace
