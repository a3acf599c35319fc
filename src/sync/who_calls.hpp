// Who is calling: a fiber, or a thread that runs none. To find recursion.
#pragma once

#include "sched/worker.hpp"

#include <pthread.h>

namespace vigil::internal {

// The same for the same caller, and for no other while it lives.
inline const void* who_calls() noexcept {
  if (const fiber* const f = current_fiber()) return f;
  return reinterpret_cast<const void*>(::pthread_self());
}

}  // namespace vigil::internal
