// stuck_signal: the signal by which somebody outside asks for the report of stuck fibers
// (install_options::stuck_signal).
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Throws std::invalid_argument for a signal that cannot serve.
void check_stuck_signal(int signal);

// Writes the report to standard error each time the process gets this signal, on a thread
// of its own; 0: not any more. Throws std::system_error if no thread can be started.
// Caller: has checked the signal.
void report_stuck_by(int signal);

}  // namespace VIGIL_DETAIL
