#include "core/sched/worker/park_check.hpp"

#include "core/sched/worker/scheduler.hpp"

namespace VIGIL_DETAIL {

constinit atomic<park_check> installed_park_check{nullptr};

[[gnu::noinline]] void leave_with_care(fiber& self, wait_reason why) noexcept {
  if (self.deferred != nullptr) self.sched->timers().release_deferred(self);
  if (self.guards.call == call_check::open) self.guards.call = call_check::done;
  // Pairs with the release of the one who installs it.
  if (const park_check check = installed_park_check.load(order::acquire))
    check(self, why == wait_reason::none ? leaving::yields : leaving::waits, why);
}

}  // namespace VIGIL_DETAIL
