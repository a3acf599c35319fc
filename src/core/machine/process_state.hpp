// Whether the library may still be used after fork() or std::exit.
//
// A child has only the thread that forked. So a child that is forked while a thread of
// the library is there (process_fork.hpp) may exec or _exit: a wait, and each call that
// needs a runtime, ends it with a message. A child that is forked while there is none may
// use all of the library.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Ends the program in a child that lacks threads.
VIGIL_FOR_IO void process_check_fork(const char* call) noexcept;

// Notes that this is one.
void process_note_fork() noexcept;

// Whether std::exit has been called, or this is a child that lacks threads: objects with
// static storage are being destroyed, or will be, while workers run or are missing.
bool process_is_exiting() noexcept;
// Notes that std::exit has been called.
void process_note_exit() noexcept;

// Notes that standard error says what ends the program, for which once is enough. True if
// it was noted before.
bool process_note_end_named() noexcept;

}  // namespace VIGIL_DETAIL
