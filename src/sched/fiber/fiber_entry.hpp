// fiber_entry: the frame around a fiber's function, on the fiber's own stack; and
// the end of what the fiber leaves behind.
#pragma once

#include "sched/fiber/fiber.hpp"

namespace vigil::inline VIGIL_ABI::detail {

// From the first instruction on the fiber's stack to the last. Its argument: the fiber.
void fiber_entry(void* argument);

// Both may be called when the runtime has gone.
// Nobody will join: the result dies, an exception is reported.
void drop_outcome(fiber& f) noexcept;
// The last owner lets go.
void dispose(fiber& f) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
