// blocked_call: a thread that stands in a system call. /proc tells where, so its stack is
// read without a signal, which would end some calls early.
#pragma once

#include "inspect/frame_step.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace VIGIL_DETAIL {

class blocked_call {
 public:
  // Looks at the thread with this number of the kernel's.
  explicit blocked_call(int thread) noexcept;

  // False where /proc does not say whether a thread stands in a call.
  bool is_told() const noexcept { return is_told_; }

  // Whether the thread stood in a call.
  bool stands() const noexcept { return stands_; }

  // The code that made the call, with its place and its stack pointer alone: the kernel
  // tells no other register that the code needs again.
  const frame& caller() const noexcept { return caller_; }

  // Whether the thread has not run since the constructor looked, so that what was read of
  // its stack is of one moment.
  bool has_stood() const noexcept;

 private:
  struct look {
    std::string_view call() const noexcept { return {text, size}; }

    char text[256];
    std::size_t size = 0;
    std::uint64_t switches = 0;
  };

  const int thread_;
  bool is_told_ = false;
  bool stands_ = false;
  look first_;
  frame caller_;
};

}  // namespace VIGIL_DETAIL
