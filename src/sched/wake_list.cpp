#include "sched/wake_list.hpp"

#include "sched/scheduler.hpp"
#include "sched/worker.hpp"

namespace vigil::internal {

void wake_list::deliver_together() noexcept {
  const worker* const w = current_worker();
  fiber_chain here;
  while (waiter* const who = claimed_.pop_front()) {
    if (w != nullptr && who->what() == waiter::kind::of_fiber &&
        who->as_fiber().sched == &w->sched) {
      here.push_back(who->as_fiber());
    } else {
      who->deliver(turn::in_order);
    }
  }
  if (!here.empty()) here.front()->sched->ready_all(here);
}

}  // namespace vigil::internal
