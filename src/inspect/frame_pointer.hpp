// frame_pointer: finds the frame of a function that keeps its place on the stack in the
// frame pointer, where that register is not known: the kernel does not tell it of a
// thread in a system call, and glibc's poll does not save it.
#pragma once

#include "inspect/frame_step.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Sets the frame pointer of f, whose stack pointer is known. False if no place of the
// stack can be its frame, or if several can: a stack also holds the remains of calls that
// have returned. Async-signal-safe as frame_rules.hpp is.
bool find_frame_pointer(frame& f, const stack_copy& stack, known_rules& known) noexcept;

}  // namespace VIGIL_DETAIL
