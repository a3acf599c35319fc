// kernel_clock: the kernel's clock source, and whether a look at it is fast.
#pragma once

#include <vigil/detail/config.hpp>

#include <string>
#include <string_view>

namespace VIGIL_DETAIL {

struct kernel_clock {
  std::string name;      // as the kernel names it; "" if it does not say
  bool is_slow = false;  // each look is a system call, of a microsecond and more
};

kernel_clock present_clock();

// The file in which present_clock() looks from now on; nullptr: the kernel's. For tests.
// caller  keeps the name.
void set_clock_source_file(const char* path) noexcept;

// Whether a look at the kernel's clock source of this name is a system call.
bool is_slow_clock(std::string_view name) noexcept;

// Says once on standard error that the clock is slow, if it is.
void warn_of_slow_clock();

}  // namespace VIGIL_DETAIL
