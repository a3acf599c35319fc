// Includes and names that the tests of coroutines and tasks share.
#pragma once

#include "support/in_runtime.hpp"

#include <vigil/co.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace vigil::testing_support {

using namespace std::chrono_literals;
namespace co = vigil::co;
using vigil::channel;
using vigil::clock;
using vigil::make_channel;
using vigil::spawn;
using vigil::task;
using vigil::task_handle;
using vigil::testing::settle;

}  // namespace vigil::testing_support
