// The seed of the program under test, for the text that main.cpp writes when the case
// crashes or hangs; 0 if there is none.
#pragma once

#include <atomic>
#include <cstdint>

namespace vigil::testing_support {

extern std::atomic<std::uint64_t> running_seed;

// A crash or a hang during its lifetime names the seed.
struct named_seed {
  explicit named_seed(std::uint64_t seed) { running_seed = seed; }

  named_seed(const named_seed&) = delete;
  named_seed& operator=(const named_seed&) = delete;

  ~named_seed() { running_seed = 0; }
};

}  // namespace vigil::testing_support
