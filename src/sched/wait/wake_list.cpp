#include "sched/wait/wake_list.hpp"

#include "sched/worker/scheduler.hpp"
#include "sched/worker/worker.hpp"

namespace VIGIL_DETAIL {

void wake_list::deliver_together() noexcept {
  const worker* const on = current_worker();
  fiber_chain here;
  while (waiter* const w = claimed_.pop_front()) {
    if (on != nullptr && w->type() == waiter::kind::of_fiber && w->as_fiber().sched == &on->sched) {
      here.push_back(w->as_fiber());
    } else {
      w->deliver(turn::in_order);
    }
  }
  if (!here.empty()) here.front()->sched->ready_all(here);
}

}  // namespace VIGIL_DETAIL
