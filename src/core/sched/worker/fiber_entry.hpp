// fiber_entry: the frame around a fiber's function, on the fiber's own stack; and the
// end of the result and the control block that the fiber leaves behind.
#pragma once

#include "core/sched/fiber/fiber.hpp"

namespace VIGIL_DETAIL {

// Runs from the first instruction on the fiber's stack to the last. `argument` is the
// fiber.
void fiber_entry(void* argument);

// Called when nobody will join: destroys the result, or reports the exception. The
// runtime may have gone, here and in dispose().
void drop_outcome(fiber& f) noexcept;
// Called when the last owner lets go: frees the control block and the stack.
void dispose(fiber& f) noexcept;

}  // namespace VIGIL_DETAIL
