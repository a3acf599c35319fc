// scheduler_options: what a runtime is made with.
#pragma once

#include <vigil/options.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

// Options with the machine's defaults filled in (checked()), and those of the library's
// own parts and tests.
struct scheduler_options : options {
  bool virtual_time = false;
  std::uint64_t seed = 1;
  // The runtime looks at the others (the live page): it has no part in a deadlock, and
  // metrics leave it out.
  bool is_observer = false;
  // The runtime runs inside a host's loop, which may always do something.
  bool is_guest = false;
};

}  // namespace VIGIL_DETAIL
