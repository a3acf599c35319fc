#include "core/time/timed_channel.hpp"

#include <vigil/error.hpp>

#include <algorithm>

namespace VIGIL_DETAIL {
namespace {

constexpr element_ops time_ops = {sizeof(nanos), alignof(nanos), nullptr, nullptr};

}  // namespace

timed_channel::timed_channel(timer_service& service,
                             std::uint32_t generation,
                             nanos when,
                             nanos period)
    : channel_core(time_ops, 0, site{"a timer", 0}),
      service_(service),
      generation_(generation),
      when_(as_pending(when)),
      period_(period) {
  source = this;
}

timed_channel::~timed_channel() {
  if (timer_ != nullptr) release_record(*timer_);
}

nanos timed_channel::as_pending(nanos when) noexcept {
  return std::min(when, runtime_timer::latest);
}

void timed_channel::hand_over(void* into, nanos when) noexcept {
  *static_cast<nanos*>(into) = when;
}

void timed_channel::arm(bool parking) {
  if (!is_pending()) {
    if (has_ended()) throw runtime_gone("vigil: a wait for a timer: its runtime has ended");
    return;
  }
  if (timer_ == nullptr) {
    timer_ = service_.make_send(&timed_channel::ring, this, generation_);
    timer_->set_slack(slack_us_);
  }
  // TC2. Dropping it never drops the last handle, since the caller has another.
  retain(this);
  bool was_armed = true;
  try {
    was_armed = service_.arm_at(*timer_, rings_at(), parking);
  } catch (...) {
    release(this);
    throw;
  }
  if (was_armed) release(this);
}

void timed_channel::nobody_waits() noexcept {
  // If stop() returns false, the timer rings at this moment, and the ring has the handle.
  if (timer_ != nullptr && service_.stop(*timer_)) release(this);
}

// Runs on the timer fiber, or when the runtime ends.
void timed_channel::ring(void* self, nanos bell, fire_again* again) noexcept {
  auto& c = *static_cast<timed_channel*>(self);
  if (bell == never) {
    c.dismiss_all();
    release(&c);
    return;
  }
  waiter* chosen = nullptr;
  {
    const lock_guard guard(c.lock);
    const nanos time = c.time_at(bell);
    if (c.is_due(time)) {
      if (queued_case* const first = c.first_receiver()) {
        hand_over(first->value, c.fire(time));
        chosen = first->whose;
      }
    }
    if (c.has_receivers() && c.is_pending()) {
      retain(&c);
      if (again->at(c.rings_at())) release(&c);
    } else {
      c.nobody_waits();  // a reset() after the bell armed it for receivers that have left
    }
  }
  if (chosen != nullptr) chosen->deliver();
  release(&c);
}

bool timed_channel::rearm(nanos when, nanos period) {
  const lock_guard guard(lock);
  if (has_ended()) throw runtime_gone("vigil: reset() of a timer: its runtime has ended");
  const nanos before = in_force();
  const nanos period_before = period_;
  set(as_pending(when));
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

bool timed_channel::stop() noexcept {
  const lock_guard guard(lock);
  const bool was_pending = is_pending() && !has_ended();
  end_pending();
  if (was_pending && has_receivers()) nobody_waits();
  return was_pending;
}

std::uint64_t timed_channel::missed() const noexcept {
  const lock_guard guard(lock);
  return missed_;
}

void timed_channel::set_slack(std::uint32_t micros) {
  const lock_guard guard(lock);
  slack_us_ = micros;
  if (timer_ != nullptr) timer_->set_slack(micros);
}

}  // namespace VIGIL_DETAIL
