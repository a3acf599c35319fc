#include "sched/call/caller.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/worker/turn_budget.hpp"

#include <vigil/detail/scoped_handle.hpp>
#include <vigil/fiber.hpp>

namespace VIGIL_DETAIL {

void stop_for_scope(const timer_record* record, call_ref stop, call_ref stop_and_wait) noexcept {
  const fiber* const self = current_fiber();
  // ordering: the fiber's own word.
  if (self != nullptr && record != nullptr && self->callback.load(order::relaxed) == record) {
    stop();
    return;
  }
  if (self == nullptr) {
    stop_and_wait();
  } else {
    // Destructors give no worker away: the call does not count.
    if (record != nullptr) static_cast<void>(spend_calls(-1));
    const this_fiber::shield until_it_has_ended;
    stop_and_wait();
  }
}

}  // namespace VIGIL_DETAIL
