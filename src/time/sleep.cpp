#include "sched/park.hpp"
#include "sched/scheduler.hpp"

#include <vigil/time.hpp>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

using internal::nanos;
using internal::never;
using internal::outcome;

namespace {

void sleep_on(internal::fiber& self, nanos now, nanos deadline, bool stoppable) {
  const internal::ticket t = self.self.open(stoppable);
  internal::current_worker()->counters.sleeps_begun.add();
  outcome how = outcome::open;
  try {
    how = internal::wait(self, t, {internal::wait_reason::sleep, deadline, stoppable, now});
  } catch (...) {
    internal::current_worker()->counters.sleeps_ended.add();
    throw;
  }
  internal::current_worker()->counters.sleeps_ended.add();
  if (how == outcome::stopped) internal::throw_stopped(self);
}

}  // namespace

std::int64_t now() noexcept {
  const internal::scheduler* const s = internal::current_scheduler();
  return s == nullptr ? internal::monotonic_now() : s->clock.now();
}

void sleep_for(std::int64_t duration) {
  internal::fiber& self = internal::require_fiber("sleep_for");
  const bool stoppable = internal::before_wait(self);
  if (duration <= 0) return;
  // The clock is read before the deadline is made: reading it later could only
  // make the sleep longer, an older reading would make it shorter.
  const nanos now = self.sched->clock.now();
  sleep_on(self, now, internal::saturating_add(now, duration), stoppable);
}

void sleep_until(std::int64_t deadline) {
  internal::fiber& self = internal::require_fiber("sleep_until");
  const bool stoppable = internal::before_wait(self);
  const nanos now = self.sched->clock.now();
  if (deadline <= now) return;
  sleep_on(self, now, deadline, stoppable);
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
