// once: idle -> running -> done, or back to idle if the function has thrown; then the
// first waiter that goes on runs its own.
#include "core/sched/worker/turn_budget.hpp"
#include "core/sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <stdexcept>

namespace VIGIL_DETAIL {

namespace {

bool begin_now(once_core& o, const wait_limit& limit) {
  // Keeps the context over all rounds, and releases it without the guard.
  caller self(limit);
  queue_guard guard(o.queue);
  for (;;) {
    switch (o.state.load(order::relaxed)) {  // ordering: changed under the guard
      case once_core::done:
        return false;
      case once_core::idle:
        o.state.store(once_core::running, order::relaxed);  // ordering: as above
        o.runner = caller_id();
        return true;
      default:
        break;
    }
    if (o.runner == caller_id()) {
      throw std::logic_error(
          "vigil::once::call: the function that it runs has called it again, which would wait for "
          "itself for ever; let the function not use what it makes");
    }
    wait_in(o.queue, self, wait_reason::once, "once::call", guard);
    guard.lock();
  }
}

}  // namespace

bool begin_once(once_core& o, const wait_limit& limit) {
  return in_turn(limit, [&o](const wait_limit& l) { return begin_now(o, l); });
}

void end_once(once_core& o, bool done) noexcept {
  wake_list claimed;
  {
    const queue_guard guard(o.queue);
    o.runner = 0;
    // Pairs with the acquire in is_done().
    o.state.store(done ? once_core::done : once_core::idle, order::release);
    detail::all_of(o.queue).claim_all(claimed);
  }
  claimed.deliver();
}

}  // namespace VIGIL_DETAIL
