// slow_fibers: options::slow_fiber, which names fibers that keep their worker too long:
// a std::mutex, a sleep of the thread, read(), an endless loop. With vigil-inspect the
// report has the frames of the fiber (dump_extension::report). The limits ran_for and
// timer_late of inspect::record_on are reported in the same way as they pass.
//
// The overseer looks at the workers' counts of stretches (worker_counters.hpp), each
// quarter of the limit, so a switch costs nothing. A stretch that goes on for two looks
// after the limit is seen, and so is one that never ends; a shorter one may be missed.
// The clock is the real one, even on virtual time.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"

#include <cstdint>
#include <vector>

namespace VIGIL_DETAIL {

class scheduler;
class worker;
struct long_run;

class slow_fibers {
 public:
  // Whether the limits of inspect::record_on hold for this run.
  static bool heeds_triggers(const scheduler& s) noexcept;

  // Watches one run; `limit` may be never. Called by the overseer from then on. Throws
  // std::bad_alloc.
  slow_fibers(scheduler& of, nanos limit);

  // Looks, if it is time. Returns when it is time again; never: there is no limit.
  nanos look(nanos now) noexcept;

 private:
  enum class limit_kind : std::uint8_t { slow_fiber, ran_for, timer_late };

  struct passed {
    limit_kind kind;
    nanos limit;
    nanos held;
  };

  bool is_timer_late(nanos now, nanos limit) const noexcept;
  void name(const worker& w, unsigned long stretch, const passed& by) noexcept;
  static void write(long_run& r, const passed& by) noexcept;
  bool is_named(const site& place) const noexcept;

  scheduler& sched_;
  const nanos limit_;
  const bool heeds_triggers_;
  nanos shortest_ = never;  // of the limits, at the last look
  nanos next_tick_ = 0;
  std::vector<unsigned long> looked_at_;  // of each worker: the stretch that was named last
  std::vector<site> named_;               // as many as there is room for
};

}  // namespace VIGIL_DETAIL
