#include "sched/wake_batch.hpp"

#include "sched/scheduler.hpp"
#include "sched/worker.hpp"

namespace vigil::internal {

// The fibers of this thread's runtime together, the others one by one.
void wake_batch::deliver() noexcept {
  const worker* const w = current_worker();
  fiber_chain here;
  for (std::size_t i = 0; i < size_; ++i) {
    waiter& who = *claimed_[i];
    if (w != nullptr && who.what() == waiter::kind::of_fiber && who.as_fiber().sched == &w->sched) {
      here.push_back(who.as_fiber());
    } else {
      who.deliver(turn::in_order);
    }
  }
  if (!here.empty()) here.front()->sched->ready_all(here);
}

}  // namespace vigil::internal
