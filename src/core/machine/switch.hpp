// The machine switch: leaving one stack for another.
//
// The danger. The compiler and the run-time library keep state per thread that
// belongs to the running fiber: the exceptions in flight and caught, errno, the
// floating-point flags, the sanitizers' idea of the current stack. A fiber that
// moves to another thread in the middle of a catch block must find its own state
// again there, and must leave the thread's own untouched.
//
// The rule. All of it is swapped on the thread's side, in enter(), through
// addresses that the thread looked up itself. The fiber never asks for an
// address of thread-local state across a switch: compilers and `const` library
// functions may remember the one of the thread it was on. A fiber that hands
// over to another one does both sides' swaps, with the thread_side that its
// worker gives it.
//
// Invariants
//   SX1 While a fiber runs, its fiber_side holds the way back to the thread;
//       otherwise it holds where the fiber goes on.
//   SX2 Only the thread between enter() and its return touches the sides of the
//       fibers that run in between. A fiber that left by hand_over() can be entered
//       elsewhere once the next fiber, which is off that stack, says so.
//   SX3 MXCSR's sticky flags are clear after each switch (jump.hpp).
//       Rounding and masks belong to the stack and stay with it.
#pragma once

#include "core/machine/jump.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/machine/stack.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// The state of exceptions that the C++ ABI keeps for each thread: the caught ones,
// and how many are in flight. The layout is that of __cxa_eh_globals in the Itanium
// ABI (32-bit ARM has a third field and is not supported).
struct exception_state {
  void* caught = nullptr;
  unsigned in_flight = 0;
};

class thread_side;
class fiber_side;

// Runs the fiber until it leaves. Called on the thread's own stack.
void enter(thread_side& thread, fiber_side& fiber) noexcept;

// Goes back to the stack that entered the fiber. Called on the fiber's stack; returns
// when the fiber is entered again, perhaps on another thread.
void leave(fiber_side& self) noexcept;

// The same for the last time.
[[noreturn]] void leave_for_ever(fiber_side& self) noexcept;

// Goes straight to another fiber, which may be new, at half the price of leave() and
// enter(). Called on the fiber's stack; `thread` is that of the worker that both run on.
// Returns when the fiber is entered again.
void hand_over(thread_side& thread, fiber_side& self, fiber_side& next) noexcept;

// The same for the last time.
[[noreturn]] void hand_over_for_ever(thread_side& thread,
                                     fiber_side& self,
                                     fiber_side& next) noexcept;

// The thread's own side. Constructed and used on that thread only.
class thread_side {
 public:
  thread_side() noexcept;
  thread_side(const thread_side&) = delete;
  thread_side& operator=(const thread_side&) = delete;

  // std::uncaught_exceptions() of the running fiber.
  unsigned exceptions_in_flight() const noexcept { return exceptions_->in_flight; }

  // The thread's errno, by the address that the thread itself looked up.
  int error_number() const noexcept { return *errno_; }

  void set_error_number(int value) const noexcept { *errno_ = value; }

 private:
  friend void enter(thread_side&, fiber_side&) noexcept;
  friend void hand_over(thread_side&, fiber_side&, fiber_side&) noexcept;
  friend void hand_over_for_ever(thread_side&, fiber_side&, fiber_side&) noexcept;
  friend class fiber_side;

  exception_state* const exceptions_;  // the thread's; the address never changes
  int* const errno_;                   // likewise
#if VIGIL_TSAN
  void* const tsan_fiber_;
#endif
};

// The fiber's side; lives in the fiber's control block.
class fiber_side {
 public:
  // The first enter() calls entry(argument) on [.., sp), which never returns: it ends
  // with leave_for_ever(). `whole` is the stack that sp, a multiple of 16, points into.
  // An exception that leaves `entry` ends the program where it was thrown: nothing below
  // is noexcept.
  void prepare(const stack& whole, void* sp, void (*entry)(void*), void* argument) noexcept;

  // caller  after leave_for_ever(), on another stack.
  void destroy() noexcept;

  // Where the fiber goes on, while it does not run. For those who look inside.
  resume_point resumes_at() const noexcept { return resume_at_; }

 private:
  friend void enter(thread_side&, fiber_side&) noexcept;
  friend void leave(fiber_side&) noexcept;
  friend void leave_for_ever(fiber_side&) noexcept;
  friend void hand_over(thread_side&, fiber_side&, fiber_side&) noexcept;
  friend void hand_over_for_ever(thread_side&, fiber_side&, fiber_side&) noexcept;
  friend void stack_begins(void*);
  friend struct debug_layout;

  void arrived() noexcept;
  void make_way_for(thread_side& thread, fiber_side& next) noexcept;

  resume_point resume_at_ = nullptr;  // SX1
  exception_state exceptions_;
  int errno_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
#if VIGIL_ASAN
  stack whole_;
  void* fake_stack_ = nullptr;
  bool from_thread_ = true;              // a thread jumped here last, not a fiber
  const void* thread_bottom_ = nullptr;  // of the stack to go back to
  std::size_t thread_size_ = 0;
#endif
#if VIGIL_TSAN
  void* tsan_fiber_ = nullptr;
  void* tsan_thread_ = nullptr;  // the thread to go back to
#endif
};

}  // namespace VIGIL_DETAIL
