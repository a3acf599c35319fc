// Includes and names that the tests of timers with a callback share.
#pragma once

#include "support/in_runtime.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using vigil::after_func;
using vigil::every;
using vigil::sleep_for;
using vigil::timer;

}  // namespace vigil::testing_support
