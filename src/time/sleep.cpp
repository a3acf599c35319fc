#include "sched/caller.hpp"
#include "sched/scheduler.hpp"

#include <vigil/time.hpp>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

std::int64_t now() noexcept {
  const internal::scheduler* const s = internal::current_scheduler();
  return s == nullptr ? internal::monotonic_now() : s->clock.now();
}

namespace {

class counted_sleep {
 public:
  counted_sleep() noexcept { internal::current_worker()->counters.sleeps_begun.add(); }

  // On another worker, it may be.
  ~counted_sleep() { internal::current_worker()->counters.sleeps_ended.add(); }

  counted_sleep(const counted_sleep&) = delete;
  counted_sleep& operator=(const counted_sleep&) = delete;
};

internal::outcome wait_for_time(internal::caller& self) {
  const counted_sleep counted;
  return self.wait(self.open(), internal::wait_reason::sleep);
}

}  // namespace

void sleep(const wait_limit& limit) {
  internal::caller self(limit);
  if (!self.is_fiber()) {
    internal::require_fiber(limit.is_relative() ? "sleep_for" : "sleep_until");
  }
  if (self.may_not_wait()) self.refuse("sleep");
  if (limit.is_over()) return;
  self.throw_if_ended(wait_for_time(self));
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
