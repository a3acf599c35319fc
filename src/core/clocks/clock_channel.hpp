// clock_channel: the channel of a timer on wall or boot time, or of an aligned ticker.
//
// It works as the channel of any timer does (timer_channel.hpp, TC1 and TC2): a value
// exists only in the hand of its receiver, and a timer stands in the heap only while a
// receiver waits. The deadline, `when_`, is on the timer's own clock. The runtime timer
// is filed at its image; when it rings the clock is read, and if that is too early it is
// filed anew.
//
// CC1 The hub counts the channel as pending while when_ is not `never`.
// CC2 While a receiver waits for a pending value, the channel is a follower of the hub.
#pragma once

#include "core/chan/channel_core.hpp"
#include "core/clocks/clock_hub.hpp"

#include <memory>

namespace VIGIL_DETAIL {

class clock_channel final : public channel_core, public timed_source, private clock_follower {
 public:
  // A period of 0 means once; otherwise `when` is the first full period. Caller: a fiber,
  // which has counted the timer as pending.
  clock_channel(const std::shared_ptr<clock_hub>& hub, clock_kind kind, nanos when, nanos period);

  // Both return true if a value was pending. reset() throws runtime_gone,
  // std::system_error or std::bad_alloc, with nothing changed.
  bool reset(nanos when, nanos period) VIGIL_EXCLUDES(lock);
  bool stop() noexcept VIGIL_EXCLUDES(lock);

  nanos deadline() const noexcept VIGIL_EXCLUDES(lock);  // never: not pending
  std::uint64_t missed() const noexcept VIGIL_EXCLUDES(lock);

  // The time on the timer's clock.
  nanos now() const noexcept { return hub_->now(kind_); }

 private:
  ~clock_channel() override;

  bool take(void* into) noexcept override VIGIL_REQUIRES(lock);

  bool has_ended() const noexcept override {
    return !hub_->service().is_this_run(hub_->generation());
  }

  void somebody_waits() override VIGIL_REQUIRES(lock);
  void nobody_waits() noexcept override VIGIL_REQUIRES(lock);

  bool is_far() const noexcept override { return false; }

  bool keep() noexcept override;
  bool clock_changed() noexcept override VIGIL_EXCLUDES(lock);

  static void ring(void* self, nanos when, fire_again* again) noexcept;

  bool is_pending() const noexcept VIGIL_REQUIRES(lock) { return when_ != never; }

  void end_pending() noexcept VIGIL_REQUIRES(lock);
  bool is_due(nanos now) noexcept VIGIL_REQUIRES(lock);
  nanos fire(nanos now) noexcept VIGIL_REQUIRES(lock);
  void arm(bool parking) VIGIL_REQUIRES(lock);

  const std::shared_ptr<clock_hub> hub_;
  const clock_kind kind_;
  nanos when_ VIGIL_GUARDED_BY(lock);
  nanos period_ VIGIL_GUARDED_BY(lock);
  std::uint64_t missed_ VIGIL_GUARDED_BY(lock) = 0;
  runtime_timer* timer_ VIGIL_GUARDED_BY(lock) = nullptr;  // made for the first receiver that waits
};

// The first full period after `now`: a multiple, also of a time before the epoch.
nanos next_full(nanos now, nanos period) noexcept;

}  // namespace VIGIL_DETAIL
