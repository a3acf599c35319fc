// Includes, names and helpers that the tests of the runtime share.
#pragma once

#include "core/runtime/with_workers.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using vigil::sleep_for;
using vigil::spawn;

}  // namespace vigil::testing_support
