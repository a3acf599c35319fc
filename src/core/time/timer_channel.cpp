#include "core/time/timer_channel.hpp"

namespace VIGIL_DETAIL {

timer_channel::timer_channel(timer_service& service, nanos when, nanos period)
    : timed_channel(service, service.generation(), when, period),
      virtual_(service.sched()->clock.is_virtual()) {}

// Uses the coarse clock: if that is further behind than `tick`, one more look misses the
// value.
bool timer_channel::is_far() const noexcept {
  constexpr nanos tick = 20'000'000;
  if (has_ended()) return false;  // closed
  // ordering: a hint.
  const nanos when = when_.load(order::relaxed);
  if (when == never) return true;
  return !virtual_ && saturating_add(coarse_monotonic_now(), tick) < when;
}

// Keeps the phase and collapses missed ticks, as Go's timerproc does.
void timer_channel::move_on(nanos now) noexcept {
  nanos when = in_force();
  if (period_ == 0) {
    set(never);
    return;
  }
  const nanos late = now > when ? now - when : 0;
  const nanos dropped = late / period_;
  missed_ += static_cast<std::uint64_t>(dropped);
  when = saturating_add(when, dropped * period_);  // not beyond now
  set(as_pending(saturating_add(when, period_)));
}

bool timer_channel::take(void* into) noexcept {
  const nanos when = in_force();
  if (when == never || has_ended()) return false;
  const nanos time = now();
  if (time < when) return false;
  hand_over(into, when);
  move_on(time);
  return true;
}

// A ticker reads the clock, since the bell may have rung long ago.
nanos timer_channel::fire(nanos time) noexcept {
  const nanos due = in_force();
  move_on(period_ == 0 ? time : service_.sched()->clock.now());
  return due;
}

nanos timer_channel::deadline() const noexcept {
  const lock_guard guard(lock);
  const nanos when = in_force();
  return when >= runtime_timer::latest || has_ended() ? never : when;
}

}  // namespace VIGIL_DETAIL
