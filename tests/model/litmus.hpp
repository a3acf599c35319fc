// Outcomes and faults of small programs, for the tests of the explorer itself.
#pragma once

#include "core/base/futex.hpp"
#include "explorer/explorer.hpp"

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include <doctest/doctest.h>

namespace programs::litmus {

inline constexpr auto relaxed = std::memory_order_relaxed;
inline constexpr auto acquire = std::memory_order_acquire;
inline constexpr auto release = std::memory_order_release;
inline constexpr auto seq_cst = std::memory_order_seq_cst;

using outcomes = std::set<std::string>;

struct words {
  std::atomic<int> x{0};
  std::atomic<int> y{0};
  int plain = 0;
};

// All outcomes of a program. The reduction loses none, with bounds or without; `whole`:
// the program is small enough to be run without the reduction.
template <class F>
outcomes all_outcomes(F&& program, bool whole = true) {
  for (const int preemptions : {0, 1, 2}) {
    for (const int stale : {0, 1, 2}) {
      outcomes seen[2];
      for (const bool reduce : {false, true}) {
        const model::report r = model::explore(program, {preemptions, stale, 10'000'000, reduce});
        CHECK(r.complete);
        seen[reduce ? 1 : 0] = model::take_outcomes();
      }
      INFO(preemptions, " preemptions, ", stale, " stale reads");
      CHECK(seen[0] == seen[1]);
    }
  }
  outcomes reduced;
  for (const bool reduce : {true, false}) {
    if (!reduce && !whole) break;
    const model::report r =
        model::explore(program, {model::unlimited, model::unlimited, 10'000'000, reduce});
    INFO(r.fault, "\n", r.trace);
    CHECK(r.complete);
    CHECK(!r.found);
    const outcomes seen = model::take_outcomes();
    if (reduce) {
      reduced = seen;
    } else {
      CHECK(seen == reduced);
    }
  }
  return reduced;
}

// The fault that a program shows in some interleaving; empty: none.
template <class F>
std::string fault_of(F&& program) {
  const model::report r = model::explore(program, {model::unlimited, model::unlimited});
  if (r.found) CHECK(model::replay(program, r.schedule).fault == r.fault);
  return r.fault;
}

inline std::string pair(int a, int b) {
  return std::to_string(a) + std::to_string(b);
}

// Two threads each store to one word and load the other.
inline auto store_buffering(std::memory_order store, std::memory_order load) {
  return [=] {
    auto w = std::make_unique<words>();
    int a = -1;
    int b = -1;
    std::thread other([&] {
      w->y.store(1, store);
      b = w->x.load(load);
    });
    w->x.store(1, store);
    a = w->y.load(load);
    other.join();
    model::note_outcome(pair(a, b));
  };
}

}  // namespace programs::litmus
