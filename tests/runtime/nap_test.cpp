// idler::nap: fibers that take turns do not wake a worker at each turn, and work that
// two workers could do side by side still reaches the second one.
#include "runtime/with_workers.hpp"
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <doctest/doctest.h>

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

TEST_SUITE("nap") {
  TEST_CASE("two fibers that take turns do not wake another worker at each turn") {
    vigil::run(with_workers(2), [] {
      vigil::spawn([] {
        constexpr int rounds = 50'000;
        // Without naps it would be two for each round. One of several tries must do: a
        // worker that a busy machine keeps waiting finds nothing, and lies down.
        constexpr std::uint64_t limit = rounds / 4;
        std::uint64_t fewest = limit;
        for (int i = 0; i < 20 && fewest >= limit; ++i) {
          const auto before = vigil::stats().wake_calls;
          take_turns(rounds);
          fewest = std::min(fewest, vigil::stats().wake_calls - before);
        }
        CHECK(fewest < limit);
      }).join();
    });
  }

  TEST_CASE("a fiber readied while a worker naps runs beside one that computes") {
    for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
      vigil::run(with_workers(workers), [] {
        vigil::spawn([] {
          for (int round = 0; round < 50; ++round) {
            take_turns(200);
            std::atomic<bool> ran{false};
            auto other = vigil::spawn([&ran] { ran.store(true); });
            while (!ran.load()) {  // never gives up its worker
            }
            other.join();
          }
        }).join();
      });
    }
  }

  TEST_CASE("a value handed over while a worker naps is taken beside one that computes") {
    vigil::run(with_workers(2), [] {
      vigil::spawn([] {
        const auto c = vigil::make_channel<int>();
        std::atomic<int> got{0};
        auto other = vigil::spawn([&] {
          for (const int n : c)
            got.store(n);
        });
        for (int round = 1; round <= 50; ++round) {
          take_turns(200);
          c.send(round);
          while (got.load() != round) {
          }
        }
        c.close();
        other.join();
      }).join();
    });
  }
}

}  // namespace
