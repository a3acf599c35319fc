// system_fiber: the library's own fibers, which run a function of one of its parts.
#pragma once

#include "core/sched/worker/scheduler.hpp"

namespace VIGIL_DETAIL {

// Makes a fiber that calls run(part). It is parked, as if it had run before, and in no
// queue: a worker that takes it enters it. Throws as make_fiber does.
fiber& make_system_fiber(
    scheduler& sched, const char* name, fiber_role role, void (*run)(void*), void* part);

template <auto Run, class Part>
fiber& make_system_fiber(scheduler& sched, const char* name, fiber_role role, Part& part) {
  return make_system_fiber(
      sched, name, role, [](void* p) { (static_cast<Part*>(p)->*Run)(); }, &part);
}

// The same for a runner that runs at once.
template <auto Run, class Part>
void start_system_fiber(scheduler& sched, const char* name, Part& part) {
  sched.make_runnable(make_system_fiber<Run>(sched, name, fiber_role::runner, part));
}

// Ends a fiber that was never entered.
void retire_system_fiber(fiber& f) noexcept;

}  // namespace VIGIL_DETAIL
