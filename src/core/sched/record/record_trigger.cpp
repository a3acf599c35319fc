#include "core/sched/record/record_trigger.hpp"

namespace VIGIL_DETAIL {

constinit record_triggers triggers;

void record_triggers::set(const limits& when, action act) noexcept {
  act_.store(act);
  late_.store(when.timer_late);
  ran_.store(when.ran_for);
  ran_ticks_.store(when.ran_for_ticks);
  missed_.store(when.deadline_missed);
}

void record_triggers::pull(trigger_kind kind, nanos by, event_clock clock) const noexcept {
  if (const action act = act_.load()) act(kind, by, clock);
}

void record_triggers::ran_long(std::uint64_t units, event_clock clock) const noexcept {
  // set() may have changed one of the two meanwhile.
  constexpr double most = 1e18;
  auto by = static_cast<double>(units);
  if (clock == event_clock::ticks) {
    by *= static_cast<double>(ran_.load()) / static_cast<double>(ran_ticks_.load());
  }
  pull(trigger_kind::ran_long, by < most ? static_cast<nanos>(by) : never, clock);
}

}  // namespace VIGIL_DETAIL
