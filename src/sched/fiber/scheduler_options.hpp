// scheduler_options: what a runtime is made with.
#pragma once

#include <vigil/options.hpp>

#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

// Options with the machine's defaults filled in (checked()), and what only tests choose.
struct scheduler_options : options {
  bool virtual_time = false;
  std::uint64_t seed = 1;
};

}  // namespace vigil::inline VIGIL_ABI::detail
