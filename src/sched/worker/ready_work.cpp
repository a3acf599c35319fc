#include "sched/worker/ready_work.hpp"

#include "sched/worker/scheduler.hpp"

namespace VIGIL_DETAIL {

bool ready_work::any_in_common(std::size_t callbacks) const noexcept {
  return !sched_.injected.empty() || sched_.signals.any() || sched_.state.over() ||
         (sched_.board.callbacks_waiting.load() > callbacks && sched_.timers().has_callbacks());
}

bool ready_work::any_in_queues() const noexcept {
  for (const auto& w : sched_.workers()) {
    if (w->has_ready()) return true;
  }
  return false;
}

bool ready_work::any(std::size_t callbacks) const noexcept {
  return any_in_common(callbacks) || any_in_queues();
}

bool ready_work::much() const noexcept {
  if (any_in_common()) return true;
  for (const auto& w : sched_.workers()) {
    if (!w->has_one()) return true;
  }
  return false;
}

bool ready_work::any_pinned() const noexcept {
  for (const auto& w : sched_.workers()) {
    if (w->has_pinned()) return true;
  }
  return false;
}

bool ready_work::waits_for_a_worker() const noexcept {
  if (!sched_.injected.empty() || sched_.timers().has_callbacks()) return true;
  if (any_in_queues() || any_pinned()) return true;
  const nanos now = sched_.clock.now();
  return sched_.board.next_deadline.load() <= now && sched_.timers().anything_due(now);
}

}  // namespace VIGIL_DETAIL
