// The number of operations of the random tests, and their seeds.
//
// VIGIL_LONG=1: ten million instead of a few hundred thousand. VIGIL_SEED=n: only the
// program with that seed; a failure names it.
#pragma once

#include "support/in_runtime.hpp"
#include "support/note.hpp"
#include "support/running_seed.hpp"

#include <cstdint>
#include <cstdlib>

#include <doctest/doctest.h>

namespace vigil::testing_support {

inline std::uint64_t operations(int normal, std::uint64_t long_form = 10'000'000) {
  return std::getenv("VIGIL_LONG") != nullptr ? long_form
                                              : static_cast<std::uint64_t>(rounds(normal));
}

// Calls one(seed), which returns the number of its operations, for seed after seed.
template <class F>
void draw_until(std::uint64_t wanted, F one) {
  const char* const given = std::getenv("VIGIL_SEED");
  std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 1;
  std::uint64_t made = 0;
  for (; made < wanted; ++seed) {
    NOTE("seed: ", seed, "; VIGIL_SEED=", seed, " replays it");
    const named_seed named(seed);
    made += one(seed);
    if (given != nullptr) break;
  }
  MESSAGE(made << " operations, seeds up to " << seed);
}

}  // namespace vigil::testing_support
