// Includes, names and helpers that the tests of cases.hpp share.
#pragma once

#include "core/sync/sync_test.hpp"

#include <vigil/cases.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace vigil::testing_support {

using vigil::go;
using vigil::make_channel;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::otherwise;
using vigil::select;

// A fiber that sleeps for the time and returns the result.
inline auto ends_after(std::chrono::milliseconds time, int result) {
  return spawn([time, result] {
    sleep_for(time);
    return result;
  });
}

}  // namespace vigil::testing_support
