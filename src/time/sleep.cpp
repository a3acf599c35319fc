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

void sleep_on(
    internal::fiber& self, nanos now, nanos deadline, bool stoppable, stop_node* under = nullptr) {
  const internal::kept_stop_node kept(under);
  const internal::ticket t = self.self.open(stoppable);
  internal::current_worker()->counters.sleeps_begun.add();
  outcome how = outcome::open;
  try {
    how = internal::wait(self, t, {internal::wait_reason::sleep, deadline, stoppable, now, under});
  } catch (...) {
    internal::current_worker()->counters.sleeps_ended.add();
    throw;
  }
  internal::current_worker()->counters.sleeps_ended.add();
  if (how == outcome::stopped) internal::throw_stopped(self);
  if (how == outcome::cancelled) internal::throw_cancelled(*under);
}

}  // namespace

std::int64_t now() noexcept {
  const internal::scheduler* const s = internal::current_scheduler();
  return s == nullptr ? internal::monotonic_now() : s->clock.now();
}

void sleep_for(std::int64_t duration) {
  sleep_for_under(duration, nullptr);
}

void sleep_until(std::int64_t deadline) {
  sleep_until_under(deadline, nullptr);
}

void sleep_for_under(std::int64_t duration, stop_node* under) {
  internal::fiber& self = internal::require_fiber("sleep_for");
  const bool stoppable = internal::before_wait(self);
  if (duration <= 0) return;
  // The clock is read before the deadline is made: reading it later could only
  // make the sleep longer, an older reading would make it shorter.
  const nanos now = self.sched->clock.now();
  sleep_on(self, now, internal::saturating_add(now, duration), stoppable, under);
}

void sleep_until_under(std::int64_t deadline, stop_node* under) {
  internal::fiber& self = internal::require_fiber("sleep_until");
  const bool stoppable = internal::before_wait(self);
  const nanos now = self.sched->clock.now();
  if (deadline <= now) return;
  sleep_on(self, now, deadline, stoppable, under);
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
