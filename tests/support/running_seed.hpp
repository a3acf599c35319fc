// The seed of the program that is being tested, for the text that main.cpp
// writes when the case crashes or hangs; 0: none.
#pragma once

#include <atomic>
#include <cstdint>

namespace vigil::testing_support {

extern std::atomic<std::uint64_t> running_seed;

}  // namespace vigil::testing_support
