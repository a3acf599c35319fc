// task_walk: a walk over the tasks of one runtime, for reports.
#pragma once

#include "core/sched/worker/runtime_part.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/task/shown_tasks.hpp"

#include <vigil/detail/config.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace VIGIL_DETAIL {

inline runtime_part* tasks_of(const scheduler& s) noexcept {
  return s.parts_above.find(runtime_part::kind::tasks);
}

// Counts the tasks. Caller: keeps the runtime from ending, as a handler_scope does.
inline shown_tasks count_tasks(const scheduler& s) noexcept {
  shown_tasks counts{.of_caller = shown_tasks::patience::waits};
  if (runtime_part* const tasks = tasks_of(s)) tasks->copy(counts);
  return counts;
}

// Calls f with the tasks, some at a time, in the order of their starts, until it has seen
// `most`; returns how many there are. `f` may copy the same ones again. Throws
// std::bad_alloc, and what f throws. Caller: as above.
template <class F>
shown_tasks walk_tasks(const scheduler& s, std::size_t most, F f) {
  constexpr std::size_t at_once = 128;
  shown_tasks some = count_tasks(s);
  if (some.all == 0) return some;
  std::vector<fiber_view> room(std::min(most, at_once));
  some.to = room.data();
  while (some.first < most) {
    some.room = std::min(most - some.first, room.size());
    tasks_of(s)->copy(some);
    if (some.copied == 0) break;
    f(*tasks_of(s), some);
    some.first += some.copied;
  }
  return some;
}

}  // namespace VIGIL_DETAIL
