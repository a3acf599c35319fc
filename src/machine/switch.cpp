#include "machine/switch.hpp"

#include "base/assert.hpp"

#include <cerrno>
#include <cstdint>

#include <boost/context/detail/fcontext.hpp>

#include <cxxabi.h>

namespace vigil::internal {

namespace context = boost::context::detail;

namespace {

// Restores W3. The instruction that loads the register is slow, the one that
// stores it is not. The flags are not part of what a fiber keeps across a
// switch: fetestexcept() after one sees them clear.
inline void clear_sticky_flags() noexcept {
#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE__))
  constexpr std::uint32_t sticky = 0x3f;
  const std::uint32_t now = __builtin_ia32_stmxcsr();
  if ((now & sticky) != 0) [[unlikely]]
    __builtin_ia32_ldmxcsr(now & ~sticky);
#endif
}

}  // namespace

thread_side::thread_side() noexcept
    : exceptions_(reinterpret_cast<exception_state*>(abi::__cxa_get_globals())),
      errno_(&errno)
#if VIGIL_TSAN
      ,
      tsan_fiber_(__tsan_get_current_fiber())
#endif
{
}

// The lowest frame of each fiber.
struct fiber_start {
  static void run(context::transfer_t from) {
    // Says that there is no caller, so that debuggers, backtrace() and the
    // unwinder stop here instead of reading past the stack.
#if defined(__x86_64__)
    asm volatile(".cfi_undefined rip");
#elif defined(__aarch64__)
    asm volatile(".cfi_undefined x30");
#endif
    auto& self = *static_cast<fiber_side*>(from.data);
    self.context_ = from.fctx;
#if VIGIL_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &self.thread_bottom_, &self.thread_size_);
#endif
    self.entry_(self.argument_);
    fatal("the entry of a fiber returned; it must end with leave_for_ever()");
  }
};

void fiber_side::prepare(stack whole,
                         void* sp,
                         void (*entry)(void*) noexcept,
                         void* argument) noexcept {
  auto* const top = static_cast<std::byte*>(sp);
  VIGIL_ASSERT(reinterpret_cast<std::uintptr_t>(sp) % 16 == 0, "sp is not a multiple of 16");
  VIGIL_ASSERT(top > whole.bottom && top <= whole.top, "sp is not in its stack");
  // The new stack starts with a copy of this thread's register.
  clear_sticky_flags();
  context_ =
      context::make_fcontext(sp, static_cast<std::size_t>(top - whole.bottom), &fiber_start::run);
  exceptions_ = {};
  errno_ = 0;
  entry_ = entry;
  argument_ = argument;
#if VIGIL_ASAN
  whole_ = whole;
  fake_stack_ = nullptr;
#endif
#if VIGIL_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

void fiber_side::destroy() noexcept {
  context_ = nullptr;
#if VIGIL_TSAN
  __tsan_destroy_fiber(tsan_fiber_);
  tsan_fiber_ = nullptr;
#endif
}

// In the three functions below ThreadSanitizer is told of the switch by the
// function that jumps and as the last thing before it: its record of calls is
// the other stack's from there on, and no instrumented function may begin or
// end in between.

[[gnu::noinline]] void enter(thread_side& thread, fiber_side& fiber) noexcept {
  clear_sticky_flags();
  // Field by field: a copy of the whole would read as one what was written in
  // parts just before, and wait for it.
  void* const own_caught = thread.exceptions_->caught;
  const unsigned own_in_flight = thread.exceptions_->in_flight;
  const int own_errno = *thread.errno_;
  *thread.exceptions_ = fiber.exceptions_;
  *thread.errno_ = fiber.errno_;
  void* const to = fiber.context_;
#if VIGIL_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.whole_.bottom, fiber.whole_.size());
#endif
#if VIGIL_TSAN
  fiber.tsan_thread_ = thread.tsan_fiber_;
  __tsan_switch_to_fiber(fiber.tsan_fiber_, 0);
#endif
  void* const left_at = context::jump_fcontext(to, &fiber).fctx;
#if VIGIL_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  fiber.context_ = left_at;
  fiber.exceptions_ = *thread.exceptions_;
  fiber.errno_ = *thread.errno_;
  thread.exceptions_->caught = own_caught;
  thread.exceptions_->in_flight = own_in_flight;
  *thread.errno_ = own_errno;
}

[[gnu::noinline]] void leave(fiber_side& self) noexcept {
  clear_sticky_flags();
  void* const to = self.context_;
#if VIGIL_ASAN
  __sanitizer_start_switch_fiber(&self.fake_stack_, self.thread_bottom_, self.thread_size_);
#endif
#if VIGIL_TSAN
  __tsan_switch_to_fiber(self.tsan_thread_, 0);
#endif
  void* const entered_from = context::jump_fcontext(to, nullptr).fctx;
#if VIGIL_ASAN
  __sanitizer_finish_switch_fiber(self.fake_stack_, &self.thread_bottom_, &self.thread_size_);
#endif
  self.context_ = entered_from;
}

void leave_for_ever(fiber_side& self) noexcept {
  clear_sticky_flags();
  void* const to = self.context_;
#if VIGIL_ASAN
  // Null: the fake stack of this fiber is freed.
  __sanitizer_start_switch_fiber(nullptr, self.thread_bottom_, self.thread_size_);
#endif
#if VIGIL_TSAN
  __tsan_switch_to_fiber(self.tsan_thread_, 0);
#endif
  context::jump_fcontext(to, nullptr);
  fatal("a fiber was entered after it had left for ever");
}

}  // namespace vigil::internal
