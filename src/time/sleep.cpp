#include "sched/scheduler.hpp"
#include "sched/wait/caller.hpp"

#include <vigil/time.hpp>

namespace vigil::inline VIGIL_ABI::detail {

std::int64_t now() noexcept {
  const detail::scheduler* const s = detail::current_scheduler();
  return s == nullptr ? detail::monotonic_now() : s->clock.now();
}

namespace {

class counted_sleep {
 public:
  counted_sleep() noexcept { detail::current_worker()->counters.sleeps_begun.add(); }

  // On another worker, it may be.
  ~counted_sleep() { detail::current_worker()->counters.sleeps_ended.add(); }

  counted_sleep(const counted_sleep&) = delete;
  counted_sleep& operator=(const counted_sleep&) = delete;
};

detail::outcome wait_for_time(detail::caller& self) {
  const counted_sleep counted;
  return self.wait(self.open(), detail::wait_reason::sleep);
}

}  // namespace

void sleep(const wait_limit& limit) {
  detail::caller self(limit);
  if (!self.is_fiber()) {
    detail::require_fiber(limit.is_relative() ? "sleep_for" : "sleep_until");
  }
  if (self.may_not_wait()) self.refuse("sleep");
  if (limit.is_over()) return;
  self.throw_if_ended(wait_for_time(self));
}

}  // namespace vigil::inline VIGIL_ABI::detail
