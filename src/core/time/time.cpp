#include "core/sched/call/caller.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/turn_budget.hpp"

#include <vigil/time.hpp>

namespace VIGIL_DETAIL {

std::int64_t now() noexcept {
  const scheduler* const s = current_scheduler();
  return s == nullptr ? monotonic_now() : s->clock.now();
}

namespace {

[[gnu::always_inline]] inline void sleep_now(const wait_limit& limit) {
  caller self(limit);
  if (!self.is_fiber()) {
    require_fiber(limit.is_relative() ? "sleep_for" : "sleep_until");
  }
  if (limit.is_over()) return self.throw_if_stopped();
  if (self.may_not_wait()) self.refuse("sleep");
  self.throw_if_ended(self.wait_asleep(self.open()));
}

}  // namespace

void sleep(const wait_limit& limit) {
  if (spend_calls()) [[unlikely]]
    return detail::call_late(limit, [](const wait_limit& l) { sleep_now(l); });
  sleep_now(limit);
}

}  // namespace VIGIL_DETAIL
