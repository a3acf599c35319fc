// virtual_time: what the one worker of a run on virtual time does when nothing can
// run at this instant: it takes in functions on side pools, waits for outside work
// while time stands still, readies a fiber that settles, and only then lets the
// clock jump to the next deadline.
//
// All of it is done by the one worker's thread, so nothing here has a lock.
#pragma once

#include "core/sched/wait/waiter.hpp"
#include "core/sched/worker/scheduler.hpp"

namespace VIGIL_DETAIL {

class deadlock_finder;
class idler;
class run_end;
class side_calls;

class virtual_time {
 public:
  virtual_time(scheduler& of, side_calls& calls, run_end& end, deadlock_finder& deadlocks) noexcept
      : sched_(of), calls_(calls), end_(end), deadlocks_(deadlocks) {}

  void begin_run() noexcept {
    calls_given_up_at_ = 0;
    sched_.at_instant.begin_run();
  }

  // Called when nothing is ready and no timer is due. True if a timer is due now, since
  // the clock has jumped.
  bool has_jumped(idler& w) noexcept;

  // Parks until nothing else can run at this instant. Throws wrong_place on real time.
  void settle();

 private:
  template <class F>
  void sleep_unless(idler& w, nanos until, F has_come) noexcept;
  void sleep_for_calls(idler& w) noexcept;

  scheduler& sched_;
  side_calls& calls_;
  run_end& end_;
  deadlock_finder& deadlocks_;
  nanos calls_given_up_at_ = 0;  // while the run ends; 0: not yet set
  // settle(): one fiber at a time.
  waiter* settler_ = nullptr;
  ticket settler_ticket_ = 0;
};

}  // namespace VIGIL_DETAIL
