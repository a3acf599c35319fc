// left_frame: what lies at the lower end of a stack that has been left, for the jump that
// comes back to it and for those who look inside.
#pragma once

#include "core/machine/jump.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

#if VIGIL_OWN_JUMP

// As vigil_jump() pushes it.
struct left_frame {
  std::uint32_t mxcsr;  // the sticky flags are clear
  std::uint16_t x87_control;
  void* r15;
  void* r14;
  void* r13;
  void* r12;
  void* rbx;
  void* rbp;
  void (*goes_on)(void*);  // the frame ends after it
};

static_assert(sizeof(left_frame) == 64);

#endif

}  // namespace VIGIL_DETAIL
