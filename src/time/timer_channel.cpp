#include "time/timer_channel.hpp"

#include <vigil/error.hpp>

#include <ctime>

namespace vigil::internal {
namespace {

constexpr detail::element_ops time_ops = {sizeof(nanos), alignof(nanos), nullptr, nullptr};

void put(void* into, nanos when) noexcept {
  *static_cast<nanos*>(into) = when;
}

}  // namespace

timer_channel::timer_channel(timer_service& service, nanos when, nanos period)
    : channel_core(time_ops, 0),
      service_(service),
      generation_(service.generation()),
      virtual_(service.sched()->is_virtual()),
      when_(when),
      period_(period) {
  source = this;
}

timer_channel::~timer_channel() {
  if (timer_ != nullptr) timer_service::drop_reference(*timer_);
}

// Surely not due yet, for a quarter of the price of a clock read. The coarse
// clock is behind by a tick of the kernel's, 10 ms at most, more only if the
// whole machine was stopped; then the value is found by the next look.
bool timer_channel::is_far(nanos when) const noexcept {
  constexpr nanos tick = 20'000'000;
  if (virtual_) return false;
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  const nanos now = static_cast<nanos>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  return saturating_add(now, tick) < when;
}

// Phase kept, missed ticks collapsed: Go's timerproc.
void timer_channel::move_on(nanos now) noexcept {
  if (period_ == 0) {
    when_ = never;
    return;
  }
  const nanos late = now > when_ ? now - when_ : 0;
  const nanos dropped = late / period_;
  missed_ += static_cast<std::uint64_t>(dropped);
  when_ = saturating_add(when_, dropped * period_);  // not beyond now
  when_ = saturating_add(when_, period_);
}

bool timer_channel::take(void* into, look how) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  if (when_ == never || (how == look::coarse && is_far(when_))) return false;
  const nanos time = now();
  if (time < when_) return false;
  put(into, when_);
  move_on(time);
  return true;
}

void timer_channel::arm(bool parking) {
  if (when_ == never) return;
  if (timer_ == nullptr) {
    timer_ = service_.make_send(&timer_channel::ring, this);
    timer_->slack_us.store(slack_us_, relaxed);  // ordering: nobody else has it yet
  }
  // H2; not the last one, since the caller has another.
  add_handle(this);
  bool was_armed = true;
  try {
    was_armed = parking ? service_.arm_parking(*timer_, when_) : service_.arm_at(*timer_, when_);
  } catch (...) {
    drop_handle(this);
    throw;
  }
  if (was_armed) drop_handle(this);
}

void timer_channel::somebody_waits() VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  arm(true);
}

void timer_channel::nobody_waits() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  // False: it rings at this moment, and the ring has the handle.
  if (timer_ != nullptr && service_.stop(*timer_)) drop_handle(this);
}

// On the timer fiber, or when the runtime ends.
void timer_channel::ring(void* self, nanos when, runtime_timer::refire& again) noexcept {
  auto& c = *static_cast<timer_channel*>(self);
  if (when == never) {
    c.close();
    drop_handle(&c);
    return;
  }
  waiter* woken = nullptr;
  {
    const lock_guard guard(c.lock);
    if (c.when_ <= when) {
      if (queued_case* const first = c.first_receiver()) {
        put(first->value, c.when_);
        woken = first->who;
        c.move_on(c.period_ == 0 ? when : c.service_.sched()->clock.now());
      }
    }
    if (c.has_receivers() && c.when_ != never) {
      add_handle(&c);
      if (again.at(c.when_)) drop_handle(&c);
    } else {
      c.nobody_waits();  // armed by a reset() after the bell, for those who have left since
    }
  }
  if (woken != nullptr) woken->deliver();
  drop_handle(&c);
}

bool timer_channel::reset(nanos when, nanos period) {
  if (!service_.is_this_run(generation_)) {
    throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
  }
  const lock_guard guard(lock);
  const nanos before = when_;
  const nanos period_before = period_;
  when_ = when;
  period_ = period;
  if (has_receivers()) {
    try {
      arm(false);
    } catch (...) {
      when_ = before;
      period_ = period_before;
      throw;
    }
    if (when_ == never) nobody_waits();
  }
  return before != never;
}

bool timer_channel::stop() noexcept {
  const lock_guard guard(lock);
  const bool was_pending = when_ != never;
  when_ = never;
  if (was_pending && has_receivers()) nobody_waits();
  return was_pending;
}

nanos timer_channel::deadline() const noexcept {
  const lock_guard guard(lock);
  return when_;
}

std::uint64_t timer_channel::missed() const noexcept {
  const lock_guard guard(lock);
  return missed_;
}

void timer_channel::set_slack(std::uint32_t micros) {
  const lock_guard guard(lock);
  slack_us_ = micros;
  if (timer_ != nullptr) timer_->slack_us.store(micros, relaxed);  // ordering: see key_for()
}

}  // namespace vigil::internal
