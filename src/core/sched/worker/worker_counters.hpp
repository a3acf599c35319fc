// worker_counters: what one worker has done. Written by its thread, read by any.
#pragma once

#include "core/base/atomic.hpp"
#include "core/sched/queue/queue_delays.hpp"
#include "core/sched/record/event_log.hpp"
#include "core/sched/worker/busy_time.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

struct worker_counters {
  // Keeps so many events.
  worker_counters(std::size_t events, const clock_source& clock)
      : log(events, clock), queued(log, clock.is_virtual()) {}

  own_counter fibers_started;
  own_counter switches;
  own_counter stretches;  // that began without a switch: of a callback, or after a yield
  own_counter steals;
  own_counter sleeps_begun;
  own_counter sleeps_ended;
  own_counter kernel_waits;
  own_counter wakes_useful;
  own_counter wakes_needless;
  busy_time busy;
  event_log log;
  queue_delays queued;

  // The number of the present stretch: a fiber's, from a switch or a callback to the
  // next. If two reads agree, none has begun in between, since neither part goes down.
  unsigned long stretch() const noexcept { return switches.get() + stretches.get(); }
};

}  // namespace VIGIL_DETAIL
