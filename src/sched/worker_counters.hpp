// worker_counters: what one worker has done. Written by its thread, summed up by any.
#pragma once

#include "base/atomic.hpp"
#include "sched/queue_delays.hpp"

namespace vigil::inline VIGIL_ABI::detail {

struct worker_counters {
  explicit worker_counters(bool is_virtual) noexcept : queued(is_virtual) {}

  own_counter fibers_started;
  own_counter switches;
  own_counter steals;
  own_counter sleeps_begun;
  own_counter sleeps_ended;
  own_counter kernel_waits;
  own_counter wakes_useful;
  own_counter wakes_needless;
  queue_delays queued;
};

}  // namespace vigil::inline VIGIL_ABI::detail
