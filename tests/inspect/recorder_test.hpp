// Includes, names and a helper that the tests of the flight recorder share.
#pragma once

#include "inspect/recording.hpp"
#include "support/in_runtime.hpp"

#include <vigil/trace.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using vigil::detail::event_kind;
using vigil::detail::recorded_event;
using vigil::detail::recording;

// The recording of the calling fiber's runtime.
inline recording own_recording(std::chrono::nanoseconds last = std::chrono::nanoseconds::max()) {
  for (recording& r : detail::collect_recordings(last.count())) {
    if (r.runtime == detail::current_scheduler()->number()) return std::move(r);
  }
  return {};
}

}  // namespace vigil::testing_support
