#include "core/time/timer_channel.hpp"

#include <vigil/error.hpp>

#include <algorithm>

namespace VIGIL_DETAIL {
namespace {

constexpr element_ops time_ops = {sizeof(nanos), alignof(nanos), nullptr, nullptr};

void put(void* into, nanos when) noexcept {
  *static_cast<nanos*>(into) = when;
}

}  // namespace

timer_channel::timer_channel(timer_service& service, nanos when, nanos period)
    : channel_core(time_ops, 0, site{"a timer", 0}),
      service_(service),
      generation_(service.generation()),
      virtual_(service.sched()->clock.is_virtual()),
      when_(pending_deadline(when)),
      period_(period) {
  source = this;
}

timer_channel::~timer_channel() {
  if (timer_ != nullptr) release_record(*timer_);
}

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

nanos timer_channel::pending_deadline(nanos when) noexcept {
  return std::min(when, runtime_timer::latest);
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
  set(pending_deadline(saturating_add(when, period_)));
}

bool timer_channel::take(void* into) noexcept {
  const nanos when = in_force();
  if (when == never || has_ended()) return false;
  const nanos time = now();
  if (time < when) return false;
  put(into, when);
  move_on(time);
  return true;
}

void timer_channel::arm(bool parking) {
  if (in_force() == never) {
    if (has_ended()) throw runtime_gone("vigil::timer: the timer's runtime has ended");
    return;
  }
  if (timer_ == nullptr) {
    timer_ = service_.make_send(&timer_channel::ring, this, generation_);
    timer_->set_slack(slack_us_);
  }
  // TC2. Dropping it never drops the last handle, since the caller has another.
  retain(this);
  bool was_armed = true;
  try {
    const nanos when = in_force();
    was_armed = service_.arm_at(*timer_, when, parking);
  } catch (...) {
    release(this);
    throw;
  }
  if (was_armed) release(this);
}

void timer_channel::somebody_waits() {
  arm(true);
}

void timer_channel::nobody_waits() noexcept {
  // If stop() returns false, the timer rings at this moment, and the ring has the handle.
  if (timer_ != nullptr && service_.stop(*timer_)) release(this);
}

// Runs on the timer fiber, or when the runtime ends.
void timer_channel::ring(void* self, nanos when, fire_again* again) noexcept {
  auto& c = *static_cast<timer_channel*>(self);
  if (when == never) {
    c.dismiss_all();
    release(&c);
    return;
  }
  waiter* chosen = nullptr;
  {
    const lock_guard guard(c.lock);
    if (c.in_force() <= when) {
      if (queued_case* const first = c.first_receiver()) {
        put(first->value, c.in_force());
        chosen = first->waiter;
        c.move_on(c.period_ == 0 ? when : c.service_.sched()->clock.now());
      }
    }
    if (c.has_receivers() && c.in_force() != never) {
      retain(&c);
      if (again->at(c.in_force())) release(&c);
    } else {
      c.nobody_waits();  // a reset() after the bell armed it for receivers that have left
    }
  }
  if (chosen != nullptr) chosen->deliver();
  release(&c);
}

bool timer_channel::reset(nanos when, nanos period) {
  const lock_guard guard(lock);
  if (has_ended()) throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
  const nanos before = in_force();
  const nanos period_before = period_;
  set(pending_deadline(when));
  period_ = period;
  if (has_receivers()) {
    try {
      arm(false);
    } catch (...) {
      set(before);
      period_ = period_before;
      throw;
    }
  }
  return before != never;
}

bool timer_channel::stop() noexcept {
  const lock_guard guard(lock);
  const bool was_pending = in_force() != never && !has_ended();
  set(never);
  if (was_pending && has_receivers()) nobody_waits();
  return was_pending;
}

nanos timer_channel::deadline() const noexcept {
  const lock_guard guard(lock);
  const nanos when = in_force();
  return when >= runtime_timer::latest || has_ended() ? never : when;
}

std::uint64_t timer_channel::missed() const noexcept {
  const lock_guard guard(lock);
  return missed_;
}

void timer_channel::set_slack(std::uint32_t micros) {
  const lock_guard guard(lock);
  slack_us_ = micros;
  if (timer_ != nullptr) timer_->set_slack(micros);
}

}  // namespace VIGIL_DETAIL
