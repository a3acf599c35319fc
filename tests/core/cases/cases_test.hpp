// Helpers that the tests of cases.hpp share.
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

// A fiber that sleeps for the time and returns the result.
inline auto ends_after(std::chrono::milliseconds time, int result) {
  return vigil::spawn([time, result] {
    vigil::sleep_for(time);
    return result;
  });
}

}  // namespace vigil::testing_support
