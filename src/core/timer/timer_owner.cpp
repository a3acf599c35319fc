#include "core/timer/timer_owner.hpp"

namespace VIGIL_DETAIL {
namespace {

// Not inlined: it is rare, and its caller is not.
[[gnu::noinline]] void count_outside(timer_owner& owner,
                                     std::uint32_t run,
                                     timer_event event) noexcept {
  const lock_guard guard(owner.outside);
  if (owner.is_this_run(run)) owner.count(event);
}

}  // namespace

void timer_owner::begin(scheduler& s, shared_event_log* events) noexcept {
  for (auto& n : counts_)
    n.store(0);
  events_.store(events);
  sched_.store(&s);
}

void timer_owner::end() noexcept {
  const lock_guard guard(outside);
  generation_.fetch_add(1);
}

nanos timer_owner::now_in(std::uint32_t run) noexcept {
  if (intake_for(run) != nullptr) return sched()->clock.now();
  const lock_guard guard(outside);
  return is_this_run(run) ? sched()->clock.now() : monotonic_now();
}

void timer_owner::record_outside(timer_event event, nanos deadline) noexcept {
  if (!recorder_is_built) return;
  const split_nanos at(deadline);
  // ordering: as in sched().
  if (shared_event_log* const events = events_.load(order::relaxed))
    events->write(recorded_as(event), at.micros & event::most, at.rest);
}

void timer_owner::count_for(std::uint32_t run, timer_event event) noexcept {
  if (intake* const in = intake_for(run)) return in->note(event);
  count_outside(*this, run, event);
}

}  // namespace VIGIL_DETAIL
