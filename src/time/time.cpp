#include "sched/call/caller.hpp"
#include "sched/worker/scheduler.hpp"
#include "sched/worker/turn_budget.hpp"

#include <vigil/time.hpp>

namespace VIGIL_DETAIL {

std::int64_t now() noexcept {
  const scheduler* const s = current_scheduler();
  return s == nullptr ? monotonic_now() : s->clock.now();
}

namespace {

class counted_sleep {
 public:
  counted_sleep() noexcept { current_worker()->counters.sleeps_begun.add(); }

  // Possibly on another worker.
  ~counted_sleep() { current_worker()->counters.sleeps_ended.add(); }

  counted_sleep(const counted_sleep&) = delete;
  counted_sleep& operator=(const counted_sleep&) = delete;
};

outcome wait_for_time(caller& self) {
  const counted_sleep counted;
  return self.wait(self.open(), wait_reason::sleep);
}

[[gnu::always_inline]] inline void sleep_now(const wait_limit& limit) {
  caller self(limit);
  if (!self.is_fiber()) {
    require_fiber(limit.is_relative() ? "sleep_for" : "sleep_until");
  }
  if (limit.is_over()) return self.throw_if_stopped();
  if (self.may_not_wait()) self.refuse("sleep");
  self.throw_if_ended(wait_for_time(self));
}

}  // namespace

void sleep(const wait_limit& limit) {
  if (spend_calls()) [[unlikely]]
    return detail::call_late(limit, [](const wait_limit& l) { sleep_now(l); });
  sleep_now(limit);
}

}  // namespace VIGIL_DETAIL
