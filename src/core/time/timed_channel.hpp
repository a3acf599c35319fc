// timed_channel: the channel of a timer, on whatever clock. timer_channel is on that of
// the runtime, clock_channel on wall and boot time.
//
// The danger. A value may be due, received, stopped and reset at the same moment from
// different threads, and none may be received that belongs to an arming that stop() or
// reset() has already ended.
//
// The rule. The deadline in force, `when_`, is guarded by the channel's lock, and there
// is no slot: a value exists only in the hand of its receiver. A look once `when_` has
// come takes the value and moves `when_` on, in one step. So stop() and reset() return
// true exactly if the value was not taken.
//
// A deadline that can never come is stored as one below `never`, and is pending all the
// same. When the runtime has ended, nothing is pending, and the channel is closed.
//
// TC1 The runtime timer is armed only while a receiver is queued. It is an
//     alarm clock: when it rings, `when_` is looked at again.
// TC2 An arming owns a handle of the channel. It passes to what ends the
//     arming: stop, or the ring.
#pragma once

#include "core/chan/channel_core.hpp"
#include "core/timer/timer_service.hpp"

namespace VIGIL_DETAIL {

class timed_channel : public channel_core, public timed_source {
 public:
  // Returns true if a value was pending.
  bool stop() noexcept VIGIL_EXCLUDES(lock);

  std::uint64_t missed() const noexcept VIGIL_EXCLUDES(lock);

 protected:
  // A period of 0 means once.
  timed_channel(timer_service& service, std::uint32_t generation, nanos when, nanos period);
  ~timed_channel() override;

  // Returns true if a value was pending. Throws runtime_gone or std::bad_alloc, with
  // nothing changed.
  bool rearm(nanos when, nanos period) VIGIL_EXCLUDES(lock);
  void set_slack(std::uint32_t micros) VIGIL_EXCLUDES(lock);

  // --- of the clock
  // The instant of the runtime's clock at which the bell is to ring for `when_`.
  virtual nanos rings_at() noexcept VIGIL_REQUIRES(lock) = 0;
  // The time on the clock, as the bell rings at an instant of the runtime's.
  virtual nanos time_at(nanos bell) const noexcept VIGIL_REQUIRES(lock) = 0;
  virtual bool is_due(nanos time) noexcept VIGIL_REQUIRES(lock) = 0;
  // Returns the value that is due at this time, and moves on.
  virtual nanos fire(nanos time) noexcept VIGIL_REQUIRES(lock) = 0;

  virtual void end_pending() noexcept VIGIL_REQUIRES(lock) { set(never); }

  // --- for receivers
  bool has_ended() const noexcept override { return !service_.is_this_run(generation_); }

  void somebody_waits() override VIGIL_REQUIRES(lock) { arm(true); }

  void nobody_waits() noexcept override VIGIL_REQUIRES(lock);

  nanos in_force() const noexcept VIGIL_REQUIRES(lock) {
    return when_.load(order::relaxed);  // ordering: under the lock
  }

  bool is_pending() const noexcept VIGIL_REQUIRES(lock) { return in_force() != never; }

  void set(nanos when) noexcept VIGIL_REQUIRES(lock) {
    when_.store(when, order::relaxed);  // ordering: under the lock; is_far() only takes a hint
  }

  // Files the timer. Caller: a receiver waits, or is about to.
  void arm(bool parking) VIGIL_REQUIRES(lock);

  static nanos as_pending(nanos when) noexcept;
  static void hand_over(void* into, nanos when) noexcept;

  timer_service& service_;
  const std::uint32_t generation_;
  std::uint32_t slack_us_ VIGIL_GUARDED_BY(lock) = 0;
  atomic<nanos> when_;  // written under the lock; `never`: not pending
  nanos period_ VIGIL_GUARDED_BY(lock);
  std::uint64_t missed_ VIGIL_GUARDED_BY(lock) = 0;
  runtime_timer* timer_ VIGIL_GUARDED_BY(lock) = nullptr;  // made for the first receiver that waits

 private:
  static void ring(void* self, nanos bell, fire_again* again) noexcept;
};

}  // namespace VIGIL_DETAIL
