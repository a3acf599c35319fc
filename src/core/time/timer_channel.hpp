// timer_channel: the channel of a timer, an after or a ticker.
#pragma once

#include "core/time/timed_channel.hpp"

namespace VIGIL_DETAIL {

class timer_channel final : public timed_channel {
 public:
  // A period of 0 means once. Caller: a fiber.
  timer_channel(timer_service& service, nanos when, nanos period);

  using timed_channel::set_slack;

  bool reset(nanos when, nanos period) VIGIL_EXCLUDES(lock) { return rearm(when, period); }

  nanos deadline() const noexcept VIGIL_EXCLUDES(lock);  // never: not pending

  nanos now() const noexcept { return service_.now_in(generation_); }

 private:
  ~timer_channel() override = default;

  bool take(void* into) noexcept override VIGIL_REQUIRES(lock);
  bool is_far() const noexcept override;

  nanos rings_at() noexcept override VIGIL_REQUIRES(lock) { return in_force(); }

  nanos time_at(nanos bell) const noexcept override VIGIL_REQUIRES(lock) { return bell; }

  bool is_due(nanos time) noexcept override VIGIL_REQUIRES(lock) { return in_force() <= time; }

  nanos fire(nanos time) noexcept override VIGIL_REQUIRES(lock);
  void move_on(nanos now) noexcept VIGIL_REQUIRES(lock);

  const bool virtual_;
};

}  // namespace VIGIL_DETAIL
