#include "core/machine/jump.hpp"

#include "core/machine/left_frame.hpp"

#include <cstdint>
#include <cstring>

#if !VIGIL_OWN_JUMP
#include <boost/context/detail/fcontext.hpp>
#endif

namespace VIGIL_DETAIL {

#if VIGIL_OWN_JUMP

namespace {

constexpr std::uint32_t sticky_flags = 0x3f;

// The lower end of a new stack.
struct first_frame {
  left_frame left;
  void* no_caller;  // where stack_begins() would find its return address
};

static_assert(sizeof(first_frame) == 72);

}  // namespace

resume_point make_resume_point(void* sp, std::size_t) noexcept {
  // stack_begins() finds its stack as after a call: 8 bytes off a multiple of 16.
  auto* const frame = static_cast<first_frame*>(sp) - 1;
  *frame = {};
  frame->left.mxcsr = __builtin_ia32_stmxcsr() & ~sticky_flags;
  asm volatile("fnstcw %0" : "=m"(frame->left.x87_control));
  frame->left.goes_on = &stack_begins;
  return frame;
}

// rdi: where to store the place that is left; rsi: the place to go to; rdx: data,
// returned in rax, and for stack_begins() the argument, in rdi.
//
// A `ret` is predicted to go where this call came from. That is right for a stack that
// was left by the same call, as among fibers that wait in one way. Other stacks, and new
// ones, take the indirect jump.
//
// The saved sticky flags are clear. So one comparison finds both: flags to be
// cleared, and a stack with other rounding or masks.
asm(R"(
  .text
  .p2align 4
  .globl vigil_jump
  .hidden vigil_jump
  .type vigil_jump, @function
vigil_jump:
  .cfi_startproc
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset rbp, 0
  pushq %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset rbx, 0
  pushq %r12
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset r12, 0
  pushq %r13
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset r13, 0
  pushq %r14
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset r14, 0
  pushq %r15
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset r15, 0
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movl (%rsp), %eax
  movq 56(%rsp), %rcx
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  xorl (%rsi), %eax
  jne 2f
1:
  .cfi_remember_state
  fldcw 4(%rsp)
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %r15
  .cfi_adjust_cfa_offset -8
  .cfi_restore r15
  popq %r14
  .cfi_adjust_cfa_offset -8
  .cfi_restore r14
  popq %r13
  .cfi_adjust_cfa_offset -8
  .cfi_restore r13
  popq %r12
  .cfi_adjust_cfa_offset -8
  .cfi_restore r12
  popq %rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore rbx
  popq %rbp
  .cfi_adjust_cfa_offset -8
  .cfi_restore rbp
  movq %rdx, %rdi
  movq %rdx, %rax
  cmpq %rcx, (%rsp)
  jne 3f
  ret
  .cfi_restore_state
2:
  movq (%rdi), %r8
  andl $~0x3f, (%r8)
  ldmxcsr (%rsp)
  jmp 1b
3:
  .cfi_def_cfa_offset 8
  .cfi_restore r15
  .cfi_restore r14
  .cfi_restore r13
  .cfi_restore r12
  .cfi_restore rbx
  .cfi_restore rbp
  popq %rcx
  .cfi_adjust_cfa_offset -8
  .cfi_register rip, rcx
  jmp *%rcx
  .cfi_endproc
  .size vigil_jump, . - vigil_jump
)");

#else

namespace fcontext = boost::context::detail;

namespace {

// Lies on the stack that is left; read on the stack that is entered.
struct arrival {
  resume_point* left;
  void* data;
};

// Clears the sticky flags. Only x86 needs it: loading them is slow there.
[[maybe_unused]] inline void clear_sticky_flags() noexcept {
#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE__))
  constexpr std::uint32_t sticky = 0x3f;
  const std::uint32_t now = __builtin_ia32_stmxcsr();
  if ((now & sticky) != 0) __builtin_ia32_ldmxcsr(now & ~sticky);
#endif
}

void* taken_from(fcontext::transfer_t from) noexcept {
  const arrival& m = *static_cast<const arrival*>(from.data);
  *m.left = from.fctx;
  return m.data;
}

}  // namespace

extern "C" [[noreturn, gnu::used, gnu::visibility("hidden")]] void vigil_start(
    fcontext::transfer_t from) {
  VIGIL_NO_CALLER;
  stack_begins(taken_from(from));
}

#if defined(__aarch64__)

// Boost's jump for 64-bit ARM leaves FPCR, which has the rounding and the masks, as it
// is. Loading it is slow, so it is compared first.

namespace {

std::uint64_t read_fpcr() noexcept {
  std::uint64_t now = 0;
  asm volatile("mrs %0, fpcr" : "=r"(now));
  return now;
}

void restore_fpcr(std::uint64_t value) noexcept {
  if (read_fpcr() != value) asm volatile("msr fpcr, %0" : : "r"(value));
}

constexpr std::size_t kept_at_top = 16;  // a stack pointer is a multiple of it

}  // namespace

// A new stack begins here, with sp at the value of FPCR that its maker had.
asm(R"(
  .text
  .p2align 2
  .globl vigil_first_step
  .hidden vigil_first_step
  .type vigil_first_step, %function
vigil_first_step:
  .cfi_startproc
  .cfi_undefined x30
  ldr x9, [sp]
  mrs x10, fpcr
  cmp x9, x10
  b.eq 1f
  msr fpcr, x9
1:
  b vigil_start
  .cfi_endproc
  .size vigil_first_step, . - vigil_first_step
)");

extern "C" [[noreturn]] void vigil_first_step(fcontext::transfer_t from);

resume_point make_resume_point(void* sp, std::size_t size) noexcept {
  std::byte* const top = static_cast<std::byte*>(sp) - kept_at_top;
  const std::uint64_t mine = read_fpcr();
  std::memcpy(top, &mine, sizeof mine);
  return fcontext::make_fcontext(top, size - kept_at_top, &vigil_first_step);
}

void* jump(resume_point& left, resume_point to, void* data) noexcept {
  const std::uint64_t mine = read_fpcr();
  arrival m{&left, data};
  const fcontext::transfer_t from = fcontext::jump_fcontext(to, &m);
  restore_fpcr(mine);
  return taken_from(from);
}

#else

resume_point make_resume_point(void* sp, std::size_t size) noexcept {
  clear_sticky_flags();  // the new stack starts with a copy of the register
  return fcontext::make_fcontext(sp, size, &vigil_start);
}

void* jump(resume_point& left, resume_point to, void* data) noexcept {
  clear_sticky_flags();
  arrival m{&left, data};
  return taken_from(fcontext::jump_fcontext(to, &m));
}

#endif

#endif

}  // namespace VIGIL_DETAIL
