// An exception that tells afterwards whether its stack was unwound.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <unwind.h>

namespace vigil::testing_support {

inline std::uintptr_t frame_of_the_throw = 0;
inline bool is_unwound = false;

struct unwinds {
  ~unwinds() { is_unwound = true; }
};

[[gnu::noinline]] inline void throw_below() {
  frame_of_the_throw = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  throw std::runtime_error("planted");
}

[[gnu::noinline]] inline void throw_planted() {
  const unwinds here;
  throw_below();
  asm volatile("");
}

// A terminate handler of the program's own: prints whether the stack of the throw still
// exists, and aborts.
inline void say_what_is_left() {
  bool found = false;
  ::_Unwind_Backtrace(
      [](_Unwind_Context* frame, void* argument) {
        if (::_Unwind_GetIP(frame) == frame_of_the_throw) *static_cast<bool*>(argument) = true;
        return _URC_NO_REASON;
      },
      &found);
  std::fprintf(stderr,
               "the throw's stack is %s, its destructors have %srun\n",
               found ? "there" : "gone",
               is_unwound ? "" : "not ");
  std::abort();
}

}  // namespace vigil::testing_support
