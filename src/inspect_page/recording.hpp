// recording: the flight recorder, as the live page sees it.
#pragma once

#include <vigil/detail/config.hpp>

#include <chrono>
#include <cstdio>

namespace vigil::inline VIGIL_ABI::detail {

// Whether there is a recorder.
bool has_recorder() noexcept;

// Writes the last `length` of the recording as a trace for Perfetto. Caller:
// has_recorder().
void write_recording(std::FILE* out, std::chrono::nanoseconds length);

}  // namespace vigil::inline VIGIL_ABI::detail
