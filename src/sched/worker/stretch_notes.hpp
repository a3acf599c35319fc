// stretch_notes: tells the flight recorder, and options::slow_fiber, of each stretch for
// which a worker runs a fiber: from a switch or a callback to the next. If neither is
// there, a switch looks at one flag.
#pragma once

#include "sched/fiber/fiber.hpp"
#include "sched/record/event_log.hpp"
#include "sched/worker/after_switch.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

class slow_fibers;

class stretch_notes {
 public:
  explicit stretch_notes(event_log& log) noexcept : wanted_(log.is_on()), log_(log) {}

  bool are_wanted() const noexcept { return wanted_; }

  // Before the worker runs, or after; nullptr: nobody looks for slow fibers.
  void set(slow_fibers* slow) noexcept;

  // The worker of that number runs `now`, or no fiber. `left` has left for it, or
  // nullptr. Caller: that worker.
  void note(unsigned worker, fiber* now, const fiber* left, after_switch step) noexcept;

 private:
  bool wanted_;
  event_log& log_;
  slow_fibers* slow_ = nullptr;
};

}  // namespace VIGIL_DETAIL
