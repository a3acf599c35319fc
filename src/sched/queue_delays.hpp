// queue_delays: how long fibers that are ready wait for a worker, of one fiber in 64. A
// look at the clock for each would cost as much as the switch.
//
// A worker has one: it stamps fibers that become ready on it, and notes those that it
// runs, whichever worker has stamped them. On virtual time nothing is timed.
#pragma once

#include "base/clock_source.hpp"
#include "sched/delay_counters.hpp"
#include "sched/fiber/fiber.hpp"

#include <vigil/stats.hpp>

#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

class queue_delays {
 public:
  explicit queue_delays(bool is_virtual) noexcept : is_virtual_(is_virtual) {}

  // f has become ready. Caller: before it is queued.
  void begin(fiber& f) noexcept {
    if (--untimed_ == 0) [[unlikely]] {
      untimed_ = timed_of;
      if (!is_virtual_) f.queued_at = monotonic_now();
    }
  }

  // f is about to run.
  void end(fiber& f) noexcept {
    if (f.queued_at != 0) [[unlikely]]
      counters_.note(monotonic_now() - std::exchange(f.queued_at, 0));
  }

  void add_stats(delay_histogram& h) const noexcept { counters_.add_stats(h); }

 private:
  static constexpr unsigned timed_of = 64;

  const bool is_virtual_;
  unsigned untimed_ = timed_of;
  delay_counters counters_;
};

}  // namespace vigil::inline VIGIL_ABI::detail
