// jump: the bare change of stacks, under everything in switch.hpp.
//
// On x86-64 it is our own, elsewhere Boost.Context's. Ours differs in two ways that
// matter more than all its other instructions: it ends with a `ret` where theirs ends
// with an indirect jump, so the processor's record of calls stays right and the returns
// after it are predicted; and it reads MXCSR, which is slow, once (docs/decisions/0004).
//
// A stack keeps these across a jump: the registers that a function must preserve, the x87
// control word, and the rounding and the masks of MXCSR. MXCSR's sticky flags are clear
// after each jump: loading a value that differs from the present one takes a hundred
// nanoseconds on some processors. The sticky flags of the x87 unit (long double) stay
// with the thread, as with Boost's jump. On 64-bit ARM it is FPCR that a stack keeps, and
// the sticky flags, which are in another register, stay with the thread.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

// With shadow stacks a `ret` must find the same address there as on the stack, and with
// branch tracking a jump must end at a landing pad. Code that is built for either takes
// Boost's jump, which supports both.
#if defined(__x86_64__) && defined(__ELF__) && defined(__LP64__) && \
    !(defined(__CET__) && (__CET__ & 3))
#define VIGIL_OWN_JUMP 1
#else
#define VIGIL_OWN_JUMP 0
#endif

namespace VIGIL_DETAIL {

// Where a stack goes on. Opaque; used once.
using resume_point = void*;

#if VIGIL_OWN_JUMP
extern "C" void* vigil_jump(resume_point* left, resume_point to, void* data) noexcept;
#endif

// Makes a resume point that begins with stack_begins() on the `size` bytes below sp, a
// multiple of 16. The data is that of the first jump there.
resume_point make_resume_point(void* sp, std::size_t size) noexcept;

// The lowest function of each stack; in switch.cpp.
[[noreturn]] VIGIL_FOR_IO void stack_begins(void* data);

// Stands in the lowest function of a stack and says that it has no caller, so that
// debuggers, backtrace() and the unwinder stop here instead of reading past the stack.
#if defined(__x86_64__)
#define VIGIL_NO_CALLER asm volatile(".cfi_undefined rip")
#elif defined(__aarch64__)
#define VIGIL_NO_CALLER asm volatile(".cfi_undefined x30")
#else
#define VIGIL_NO_CALLER
#endif

// Stores in `left` where the caller goes on, and goes on at `to`. Returns the data of the
// jump that comes back. `left` may be the object that `to` was read from.
#if VIGIL_OWN_JUMP
// Inlined, so that no function that a sanitizer counts begins on one stack and
// ends on another.
[[gnu::always_inline]] inline void* jump(resume_point& left, resume_point to, void* data) noexcept {
  return vigil_jump(&left, to, data);
}
#else
void* jump(resume_point& left, resume_point to, void* data) noexcept;
#endif

}  // namespace VIGIL_DETAIL
