#include "core/clocks/clock_channel.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <new>

namespace VIGIL_DETAIL {
namespace {

nanos last_full(nanos now, nanos period) noexcept {
  const nanos rest = now % period;
  return saturating_add(now, rest < 0 ? -rest - period : -rest);
}

}  // namespace

nanos next_full(nanos now, nanos period) noexcept {
  return std::min(saturating_add(last_full(now, period), period), runtime_timer::latest);
}

clock_channel::clock_channel(const std::shared_ptr<clock_hub>& hub,
                             clock_kind kind,
                             nanos when,
                             nanos period)
    : timed_channel(hub->service(), hub->generation(), when, period), hub_(hub), kind_(kind) {}

clock_channel::~clock_channel() {
  hub_->remove(*this);
  if (is_pending()) hub_->end_pending();
}

void clock_channel::end_pending() noexcept {
  if (!is_pending()) return;
  set(never);
  hub_->end_pending();
}

// An aligned ticker whose next tick is more than a period away was stepped back: it ticks
// at the next full period.
bool clock_channel::is_due(nanos time) noexcept {
  if (!is_pending() || has_ended()) return false;
  if (period_ != 0 && distance(time, in_force()) > period_) set(next_full(time, period_));
  return time >= in_force();
}

bool clock_channel::take(void* into) noexcept {
  if (!is_pending()) return false;
  const nanos time = now();
  if (!is_due(time)) return false;
  hand_over(into, fire(time));
  return true;
}

// A ticker that is late, or was stepped over several periods, gives the last of them.
nanos clock_channel::fire(nanos time) noexcept {
  const nanos due = in_force();
  if (period_ == 0) {
    end_pending();
    return due;
  }
  const nanos last = last_full(time, period_);
  missed_ += static_cast<std::uint64_t>(distance(due, last) / period_);
  set(next_full(time, period_));
  return last;
}

// In the order of CK1.
nanos clock_channel::rings_at() noexcept {
  hub_->add(*this);
  is_due(now());  // for a ticker that was stepped back
  return hub_->image(kind_, in_force());
}

void clock_channel::somebody_waits() {
  try {
    timed_channel::somebody_waits();
  } catch (...) {
    hub_->remove(*this);
    throw;
  }
}

void clock_channel::nobody_waits() noexcept {
  hub_->remove(*this);
  timed_channel::nobody_waits();
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
  if (rearm(when, period)) return true;
  mark.commit();
  return false;
}

nanos clock_channel::deadline() const noexcept {
  const lock_guard guard(lock);
  if (in_force() >= runtime_timer::latest || has_ended()) return never;
  const nanos time = now();
  return period_ != 0 && distance(time, in_force()) > period_ ? next_full(time, period_)
                                                              : in_force();
}

}  // namespace VIGIL_DETAIL
