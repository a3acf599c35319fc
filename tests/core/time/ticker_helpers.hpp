// Helpers that the tests of tickers share.
#pragma once

#include "core/time/time_test.hpp"

#include <vector>

namespace vigil::testing_support {

using vigil::tick;
using times = std::vector<nanoseconds>;

// The next n ticks, as distances from `start`; each is received at its own instant or
// later.
inline times ticks_of(const timer_receiver& from, int n, instant start) {
  times got;
  for (int i = 0; i < n; ++i) {
    const instant value = from.recv().value();
    CHECK(value <= clock::now());
    got.push_back(value - start);
  }
  return got;
}

}  // namespace vigil::testing_support
