// frame_step: goes from a frame of a call to its caller's, by the rules of
// frame_rules.hpp. It reads the stack from a copy alone, so a stack that goes on
// meanwhile does no harm.
//
// It takes no lock and allocates nothing; async-signal-safe as frame_rules.hpp is.
#pragma once

#include "inspect/frame_rules.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// The registers of a frame, as far as they are known.
class frame_registers {
 public:
  bool knows(std::uint64_t n) const noexcept {
    return n < frame_register_count && (known_ >> n & 1) != 0;
  }

  std::uintptr_t operator[](std::uint64_t n) const noexcept { return values_[n]; }

  void set(unsigned n, std::uintptr_t value) noexcept {
    values_[n] = value;
    known_ |= std::uint64_t{1} << n;
  }

 private:
  std::uintptr_t values_[frame_register_count] = {};
  std::uint64_t known_ = 0;
};

// A part of a stack: the bytes that were at [begin, end) when it was copied. For the
// stack of the calling function they may be those bytes themselves.
struct stack_copy {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const std::byte* bytes = nullptr;

  // False if the word is not in the copy.
  bool read(std::uintptr_t from, std::uintptr_t& word) const noexcept;
};

struct frame {
  std::uintptr_t place = 0;  // in the code
  bool is_call = true;       // the place is where a call returns to, right after the call
  frame_registers registers;
};

// The innermost frame of the code that a signal has interrupted; `machine_state` is the
// ucontext_t that its handler is given, or one that getcontext() has filled in.
frame interrupted_frame(const void* machine_state) noexcept;

enum class step_result : std::uint8_t {
  caller,         // the frame is the caller's now
  bottom,         // it has none
  no_rules,       // there is no information about its code
  lost,           // a register that the way to the caller needs is not known
  not_in_copy,    // the caller's registers lie outside the copy
  not_supported,  // the information is of an unknown kind, or the stack is damaged
};

// Unless it finds a caller, f stays as it is.
step_result step(frame& f, const stack_copy& stack, known_rules& known) noexcept;

}  // namespace VIGIL_DETAIL
