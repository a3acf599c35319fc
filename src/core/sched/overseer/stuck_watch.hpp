// stuck_watch: options::stuck_limit, which says once that no worker switches although a
// fiber waits for one: the workers are blocked, in a function-local static or a
// std::call_once whose initialiser waits or in a std::mutex, or compute for ever.
//
// A stuck worker cannot look, so the overseer looks at the workers' counts of switches,
// while workers are awake: it stops after some ticks in which all of them slept and no
// fiber waited, and a worker that gets up rings for it (oversight.hpp).
// (docs/decisions/0025)
#pragma once

#include "core/base/nanos.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class scheduler;

// Counts how long a fiber has waited while no worker has switched, as seen by one look in
// each tick. It adds up ticks, not time, and begins anew after a look that came late by
// more than half a second: then the process was stopped, by SIGSTOP or a debugger, and
// its fibers with it.
class stuck_count {
 public:
  stuck_count(nanos limit, nanos tick) noexcept : limit_(limit), tick_(tick) {}

  // True once, when the limit is reached.
  bool look(nanos now, bool has_switched, bool somebody_waits) noexcept;

 private:
  const nanos limit_;
  const nanos tick_;
  nanos last_look_ = 0;
  bool waited_ = false;  // at the last look
  nanos counted_ = 0;
  bool reported_ = false;
};

class stuck_watch {
 public:
  // Watches one run; `limit` may be never. Called by the overseer from then on.
  stuck_watch(scheduler& of, nanos limit) noexcept;

  // Looks, if a tick is over. Returns the end of the present one, or `never` if nobody
  // need look until a worker gets up.
  nanos look(nanos now) noexcept;

 private:
  bool all_sleep() const noexcept;
  void report() noexcept;

  scheduler& sched_;
  const nanos limit_;
  const nanos tick_;
  nanos next_tick_ = 0;
  stuck_count count_;
  std::uint64_t switches_ = 0;  // of all workers, at the last look
  int ticks_at_rest_ = 0;
};

}  // namespace VIGIL_DETAIL
