// clock_channel: the channel of a timer on wall or boot time, or of an aligned ticker.
//
// The deadline, `when_`, is on the timer's own clock (timed_channel.hpp). The runtime
// timer is filed at its image; when it rings the clock is read, and if that is too early
// it is filed anew.
//
// CC1 The hub counts the channel as pending while when_ is not `never`.
// CC2 While a receiver waits for a pending value, the channel is a follower of the hub.
#pragma once

#include "core/clocks/clock_hub.hpp"
#include "core/time/timed_channel.hpp"

#include <memory>

namespace VIGIL_DETAIL {

class clock_channel final : public timed_channel, private clock_follower {
 public:
  // A period of 0 means once; otherwise `when` is the first full period. Caller: a fiber,
  // which has counted the timer as pending.
  clock_channel(const std::shared_ptr<clock_hub>& hub, clock_kind kind, nanos when, nanos period);

  // As rearm(); throws std::system_error as well.
  bool reset(nanos when, nanos period) VIGIL_EXCLUDES(lock);

  nanos deadline() const noexcept VIGIL_EXCLUDES(lock);  // never: not pending

  // The time on the timer's clock.
  nanos now() const noexcept { return hub_->now(kind_); }

 private:
  ~clock_channel() override;

  bool take(void* into) noexcept override VIGIL_REQUIRES(lock);
  void somebody_waits() override VIGIL_REQUIRES(lock);
  void nobody_waits() noexcept override VIGIL_REQUIRES(lock);

  bool is_far() const noexcept override { return false; }

  nanos rings_at() noexcept override VIGIL_REQUIRES(lock);

  nanos time_at(nanos) const noexcept override VIGIL_REQUIRES(lock) { return now(); }

  bool is_due(nanos time) noexcept override VIGIL_REQUIRES(lock);
  nanos fire(nanos time) noexcept override VIGIL_REQUIRES(lock);
  void end_pending() noexcept override VIGIL_REQUIRES(lock);

  bool keep() noexcept override;
  bool clock_changed() noexcept override VIGIL_EXCLUDES(lock);

  const std::shared_ptr<clock_hub> hub_;
  const clock_kind kind_;
};

// The first full period after `now`: a multiple, also of a time before the epoch.
nanos next_full(nanos now, nanos period) noexcept;

}  // namespace VIGIL_DETAIL
