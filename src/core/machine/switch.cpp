#include "core/machine/switch.hpp"

#include "core/base/assert.hpp"
#include "core/machine/jump.hpp"

#include <cerrno>
#include <cstdint>
#include <utility>

namespace VIGIL_DETAIL {

// __cxa_get_globals of the Itanium C++ ABI (2.2.2), which only libstdc++ declares.
extern "C" exception_state* exceptions_of_thread() noexcept __asm__("__cxa_get_globals");

thread_side::thread_side() noexcept
    : exceptions_(exceptions_of_thread()),
      errno_(&errno)
#if VIGIL_TSAN
      ,
      tsan_fiber_(__tsan_get_current_fiber())
#endif
{
}

[[noreturn]] void stack_begins(void* data) {
  VIGIL_NO_CALLER;
  auto& self = *static_cast<fiber_side*>(data);
  self.arrived();
  self.entry_(self.argument_);
  fatal("the entry of a fiber returned; it must end with leave_for_ever()");
}

void fiber_side::prepare(const stack& whole,
                         void* sp,
                         void (*entry)(void*),
                         void* argument) noexcept {
  auto* const top = static_cast<std::byte*>(sp);
  VIGIL_ASSERT(reinterpret_cast<std::uintptr_t>(sp) % 16 == 0, "sp is not a multiple of 16");
  VIGIL_ASSERT(top > whole.bottom && top <= whole.top, "sp is not in its stack");
  resume_at_ = make_resume_point(sp, static_cast<std::size_t>(top - whole.bottom));
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
  resume_at_ = nullptr;
#if VIGIL_TSAN
  __tsan_destroy_fiber(tsan_fiber_);
  tsan_fiber_ = nullptr;
#endif
}

// Comes first on a fiber's stack after a jump to it.
inline void fiber_side::arrived() noexcept {
#if VIGIL_ASAN
  if (from_thread_) {
    __sanitizer_finish_switch_fiber(fake_stack_, &thread_bottom_, &thread_size_);
  } else {
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
  }
#endif
}

// Replaces the state that belongs to the running fiber, from this fiber's to the next's.
inline void fiber_side::make_way_for(thread_side& thread, fiber_side& next) noexcept {
  exceptions_.caught = thread.exceptions_->caught;
  exceptions_.in_flight = thread.exceptions_->in_flight;
  errno_ = *thread.errno_;
  thread.exceptions_->caught = next.exceptions_.caught;
  thread.exceptions_->in_flight = next.exceptions_.in_flight;
  *thread.errno_ = next.errno_;
#if VIGIL_ASAN
  next.from_thread_ = false;
  next.thread_bottom_ = thread_bottom_;
  next.thread_size_ = thread_size_;
#endif
#if VIGIL_TSAN
  next.tsan_thread_ = tsan_thread_;
#endif
}

// The functions below that jump tell ThreadSanitizer of the switch themselves, and as the
// last thing before the jump: its record of calls is the other stack's from there on, and
// no instrumented function may begin or end in between.

[[gnu::noinline]] void enter(thread_side& thread, fiber_side& fiber) noexcept {
  // Copied field by field: a copy of the whole would read in one piece what was written
  // in parts just before, and wait for it.
  void* const own_caught = thread.exceptions_->caught;
  const unsigned own_in_flight = thread.exceptions_->in_flight;
  const int own_errno = *thread.errno_;
  *thread.exceptions_ = fiber.exceptions_;
  *thread.errno_ = fiber.errno_;
#if VIGIL_ASAN
  fiber.from_thread_ = true;
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.whole_.bottom, fiber.whole_.size());
#endif
#if VIGIL_TSAN
  fiber.tsan_thread_ = thread.tsan_fiber_;
  __tsan_switch_to_fiber(fiber.tsan_fiber_, 0);
#endif
  void* const back = jump(fiber.resume_at_, fiber.resume_at_, &fiber);
#if VIGIL_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  // The fiber that left, which is not the one entered if fibers have handed over.
  fiber_side& last = *static_cast<fiber_side*>(back);
  last.exceptions_ = *thread.exceptions_;
  last.errno_ = *thread.errno_;
  thread.exceptions_->caught = own_caught;
  thread.exceptions_->in_flight = own_in_flight;
  *thread.errno_ = own_errno;
}

[[gnu::noinline]] void leave(fiber_side& self) noexcept {
#if VIGIL_ASAN
  __sanitizer_start_switch_fiber(&self.fake_stack_, self.thread_bottom_, self.thread_size_);
#endif
#if VIGIL_TSAN
  __tsan_switch_to_fiber(self.tsan_thread_, 0);
#endif
  jump(self.resume_at_, self.resume_at_, &self);
  self.arrived();
}

void leave_for_ever(fiber_side& self) noexcept {
#if VIGIL_ASAN
  // Null: the fake stack of this fiber is freed.
  __sanitizer_start_switch_fiber(nullptr, self.thread_bottom_, self.thread_size_);
#endif
#if VIGIL_TSAN
  __tsan_switch_to_fiber(self.tsan_thread_, 0);
#endif
  jump(self.resume_at_, self.resume_at_, &self);
  fatal("a fiber was entered after it had left for ever");
}

[[gnu::noinline]] void hand_over(thread_side& thread, fiber_side& self, fiber_side& next) noexcept {
  self.make_way_for(thread, next);
  const resume_point to = std::exchange(next.resume_at_, self.resume_at_);
#if VIGIL_ASAN
  __sanitizer_start_switch_fiber(&self.fake_stack_, next.whole_.bottom, next.whole_.size());
#endif
#if VIGIL_TSAN
  __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
  jump(self.resume_at_, to, &next);
  self.arrived();
}

void hand_over_for_ever(thread_side& thread, fiber_side& self, fiber_side& next) noexcept {
  self.make_way_for(thread, next);
  const resume_point to = std::exchange(next.resume_at_, self.resume_at_);
#if VIGIL_ASAN
  // Null: the fake stack of this fiber is freed.
  __sanitizer_start_switch_fiber(nullptr, next.whole_.bottom, next.whole_.size());
#endif
#if VIGIL_TSAN
  __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
  jump(self.resume_at_, to, &next);
  fatal("a fiber was entered after it had left for ever");
}

}  // namespace VIGIL_DETAIL
