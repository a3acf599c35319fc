// jump: the bare change of stacks, under everything in switch.hpp.
//
// On x86-64 it is our own, elsewhere Boost.Context's. Ours differs in two
// things that count for more than all its instructions: it ends with a `ret`
// where theirs ends with an indirect jump, so the processor's record of calls
// stays right and the returns after it are predicted; and it reads MXCSR, which
// is slow, once (docs/decisions/0004).
//
// What a stack keeps across a jump: the registers that a function must keep,
// the x87 control word, and of MXCSR the rounding and the masks. The sticky
// floating-point flags are clear after each jump: loading a register that
// differs from the present one takes a hundred nanoseconds on some processors.
#pragma once

#include <cstddef>

namespace vigil::internal {

// Where a stack goes on. Opaque; used once.
using context = void*;

// One that begins with stack_begins(), on the `size` bytes below sp, a multiple
// of 16. The data is that of the jump there.
context make_context(void* sp, std::size_t size) noexcept;

// The lowest function of each stack; in switch.cpp.
[[noreturn]] void stack_begins(void* data) noexcept;

// In the lowest function of a stack: says that there is no caller, so that
// debuggers, backtrace() and the unwinder stop here instead of reading past the
// stack.
#if defined(__x86_64__)
#define VIGIL_NO_CALLER asm volatile(".cfi_undefined rip")
#elif defined(__aarch64__)
#define VIGIL_NO_CALLER asm volatile(".cfi_undefined x30")
#else
#define VIGIL_NO_CALLER
#endif

// Stores in `left` where the caller goes on, and goes on at `to`. Returns what
// is given by the one who jumps there. `left` may be where `to` was read from.
void* jump(context& left, context to, void* data) noexcept;

}  // namespace vigil::internal
