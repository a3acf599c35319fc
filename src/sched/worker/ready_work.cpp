#include "sched/worker/ready_work.hpp"

#include "sched/fiber/run_state.hpp"
#include "sched/queue/injection_queue.hpp"
#include "sched/wait/timer_seam.hpp"
#include "sched/worker/signal_hub.hpp"

namespace VIGIL_DETAIL {

bool ready_work::any_in_common(std::size_t callbacks) const noexcept {
  return !from_.injected.empty() || from_.signals.any() || from_.state.over() ||
         (from_.callbacks_waiting.load() > callbacks && from_.timers->has_callbacks());
}

bool ready_work::any_in_queues() const noexcept {
  for (const auto& w : from_.workers) {
    if (w->has_ready()) return true;
  }
  return false;
}

bool ready_work::any(std::size_t callbacks) const noexcept {
  return any_in_common(callbacks) || any_in_queues();
}

bool ready_work::much() const noexcept {
  if (any_in_common()) return true;
  for (const auto& w : from_.workers) {
    if (!w->has_one()) return true;
  }
  return false;
}

bool ready_work::any_pinned() const noexcept {
  for (const auto& w : from_.workers) {
    if (w->has_pinned()) return true;
  }
  return false;
}

bool ready_work::waits_for_a_worker() const noexcept {
  if (!from_.injected.empty() || from_.timers->has_callbacks()) return true;
  if (any_in_queues() || any_pinned()) return true;
  const nanos now = from_.clock.now();
  return from_.next_deadline.load() <= now && from_.timers->anything_due(now);
}

}  // namespace VIGIL_DETAIL
