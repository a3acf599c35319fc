// asking_signal: a signal by which somebody outside asks the library for something, from
// the call that names it until one that names another. Its handler is the asker's own.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Throws std::invalid_argument, with a text that begins with `call`, if the program uses
// the signal or may not.
void check_asking_signal(const char* call, int number, void (*mine)(int));

// Installs `mine` for the signal, which has been checked, and gives up an earlier one; 0:
// there is none.
void take_asking_signal(int number, int given_up, void (*mine)(int)) noexcept;

// For a handler whose signal has been given up. A run with options::stop_on that began
// before that has put the handler back; if it is not there any more, the signal came just
// before. Async-signal-safe.
void act_by_default(int number, void (*mine)(int)) noexcept;

}  // namespace VIGIL_DETAIL
