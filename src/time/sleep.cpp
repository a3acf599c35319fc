#include "sched/park.hpp"
#include "sched/scheduler.hpp"

#include <vigil/time.hpp>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

using internal::outcome;

std::int64_t now() noexcept {
  const internal::scheduler* const s = internal::current_scheduler();
  return s == nullptr ? internal::monotonic_now() : s->clock.now();
}

void sleep(const wait_limit& limit) {
  internal::fiber& self =
      internal::require_fiber(limit.is_relative() ? "sleep_for" : "sleep_until");
  const bool stoppable = internal::before_wait(self);
  if (limit.is_over()) return;
  const kept_limit kept(limit);
  const internal::ticket t = self.self.open(stoppable);
  internal::current_worker()->counters.sleeps_begun.add();
  outcome how = outcome::open;
  try {
    how = internal::wait(self, t, internal::wait_reason::sleep, limit, stoppable);
  } catch (...) {
    internal::current_worker()->counters.sleeps_ended.add();
    throw;
  }
  internal::current_worker()->counters.sleeps_ended.add();
  if (how == outcome::stopped) internal::throw_stopped(self);
  if (how == outcome::cancelled) internal::throw_cancelled(*limit.under);
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
