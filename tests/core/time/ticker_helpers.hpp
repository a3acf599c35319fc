// Helpers that the tests of tickers share.
#pragma once

#include "support/in_runtime.hpp"

#include <chrono>
#include <vector>

namespace vigil::testing_support {

// The next n ticks, as distances from `start`; each is received at its own instant or
// later.
inline std::vector<std::chrono::nanoseconds> ticks_of(const timer_receiver& from,
                                                      int n,
                                                      clock::time_point start) {
  std::vector<std::chrono::nanoseconds> got;
  for (int i = 0; i < n; ++i) {
    const clock::time_point value = from.recv().value();
    CHECK(value <= clock::now());
    got.push_back(value - start);
  }
  return got;
}

}  // namespace vigil::testing_support
