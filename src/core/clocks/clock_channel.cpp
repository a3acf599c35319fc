#include "core/clocks/clock_channel.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <new>

namespace VIGIL_DETAIL {
namespace {

constexpr element_ops clock_time_ops = {sizeof(nanos), alignof(nanos), nullptr, nullptr};

// A deadline that never comes is pending all the same.
nanos as_pending(nanos when) noexcept {
  return std::min(when, never - 1);
}

void hand_over(void* into, nanos when) noexcept {
  *static_cast<nanos*>(into) = when;
}

nanos last_full(nanos now, nanos period) noexcept {
  const nanos rest = now % period;
  return saturating_add(now, rest < 0 ? -rest - period : -rest);
}

}  // namespace

nanos next_full(nanos now, nanos period) noexcept {
  return as_pending(saturating_add(last_full(now, period), period));
}

clock_channel::clock_channel(const std::shared_ptr<clock_hub>& hub,
                             clock_kind kind,
                             nanos when,
                             nanos period)
    : channel_core(clock_time_ops, 0, site{"a timer", 0}),
      hub_(hub),
      kind_(kind),
      when_(as_pending(when)),
      period_(period) {
  source = this;
}

clock_channel::~clock_channel() {
  hub_->remove(*this);
  if (when_ != never) hub_->end_pending();
  if (timer_ != nullptr) release_record(*timer_);
}

void clock_channel::end_pending() noexcept {
  if (!is_pending()) return;
  when_ = never;
  hub_->end_pending();
}

// Whether a value is due. An aligned ticker whose next tick is more than a period away
// was stepped back: it ticks at the next full period.
bool clock_channel::is_due(nanos now) noexcept {
  if (!is_pending() || has_ended()) return false;
  if (period_ != 0 && distance(now, when_) > period_) when_ = next_full(now, period_);
  return now >= when_;
}

// Returns the value that is due, and moves on. A ticker that is late, or was stepped over
// several periods, gives the last of them.
nanos clock_channel::fire(nanos now) noexcept {
  const nanos due = when_;
  if (period_ == 0) {
    end_pending();
    return due;
  }
  const nanos last = last_full(now, period_);
  missed_ += static_cast<std::uint64_t>(distance(due, last) / period_);
  when_ = next_full(now, period_);
  return last;
}

bool clock_channel::take(void* into) noexcept {
  if (!is_pending()) return false;
  const nanos time = now();
  if (!is_due(time)) return false;
  hand_over(into, fire(time));
  return true;
}

// Files the timer (CK1). Caller: a receiver waits, or is about to.
void clock_channel::arm(bool parking) {
  if (!is_pending()) {
    if (has_ended())
      throw runtime_gone("vigil: a timer on wall or boot time: its runtime has ended");
    return;
  }
  timer_service& service = hub_->service();
  if (timer_ == nullptr) timer_ = service.make_send(&clock_channel::ring, this, hub_->generation());
  hub_->add(*this);
  is_due(now());  // for a ticker that was stepped back
  retain(this);   // TC2
  bool was_armed = true;
  try {
    was_armed = service.arm_at(*timer_, hub_->image(kind_, when_), parking);
  } catch (...) {
    release(this);
    throw;
  }
  if (was_armed) release(this);
}

void clock_channel::somebody_waits() {
  try {
    arm(true);
  } catch (...) {
    hub_->remove(*this);
    throw;
  }
}

void clock_channel::nobody_waits() noexcept {
  hub_->remove(*this);
  // If stop() returns false, the timer rings at this moment, and the ring has the handle.
  if (timer_ != nullptr && hub_->service().stop(*timer_)) release(this);
}

// Runs on the timer fiber, or when the runtime ends.
void clock_channel::ring(void* self, nanos when, fire_again* again) noexcept {
  auto& c = *static_cast<clock_channel*>(self);
  if (when == never) {
    c.dismiss_all();
    release(&c);
    return;
  }
  waiter* chosen = nullptr;
  {
    const lock_guard guard(c.lock);
    const nanos time = c.now();
    if (c.is_due(time)) {
      if (queued_case* const first = c.first_receiver()) {
        hand_over(first->value, c.fire(time));
        chosen = first->waiter;
      }
    }
    if (c.has_receivers() && c.is_pending()) {
      retain(&c);
      if (again->at(c.hub_->image(c.kind_, c.when_))) release(&c);
    } else {
      c.nobody_waits();
    }
  }
  if (chosen != nullptr) chosen->deliver();
  release(&c);
}

// Takes a handle, unless the last one is gone and the channel about to end.
bool clock_channel::keep() noexcept {
  std::size_t n = handles.load();
  while (n != 0) {
    if (handles.compare_exchange_weak(n, n + 1)) return true;
  }
  return false;
}

bool clock_channel::clock_changed() noexcept {
  bool filed = true;
  try {
    const lock_guard guard(lock);
    if (has_receivers() && is_pending()) {
      arm(false);
    }
  } catch (const std::bad_alloc&) {
    filed = false;  // it rings at its earlier image, if nothing else comes before
  } catch (const runtime_gone&) {
  }
  release(this);
  return filed;
}

bool clock_channel::reset(nanos when, nanos period) {
  pending_mark mark(*hub_);
  const lock_guard guard(lock);
  if (has_ended()) throw runtime_gone("vigil: a timer on wall or boot time: its runtime has ended");
  const nanos before = when_;
  const nanos period_before = period_;
  when_ = as_pending(when);
  period_ = period;
  if (has_receivers()) {
    try {
      arm(false);
    } catch (...) {
      when_ = before;
      period_ = period_before;
      throw;
    }
  }
  if (before != never) return true;
  mark.keep();
  return false;
}

bool clock_channel::stop() noexcept {
  const lock_guard guard(lock);
  const bool was_pending = is_pending() && !has_ended();
  end_pending();
  if (was_pending && has_receivers()) nobody_waits();
  return was_pending;
}

nanos clock_channel::deadline() const noexcept {
  const lock_guard guard(lock);
  if (when_ >= never - 1 || has_ended()) return never;
  const nanos time = now();
  return period_ != 0 && distance(time, when_) > period_ ? next_full(time, period_) : when_;
}

std::uint64_t clock_channel::missed() const noexcept {
  const lock_guard guard(lock);
  return missed_;
}

}  // namespace VIGIL_DETAIL
