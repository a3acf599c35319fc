// virtual_time: what the one worker of a run on virtual time does when nothing can
// run at this instant: it takes in functions on side pools, waits for outside work
// while time stands still, readies a fiber that settles, and only then lets the
// clock jump to the next deadline.
//
// All of it is done by the one worker's thread, so nothing here has a lock.
#pragma once

#include "base/atomic.hpp"
#include "base/clock_source.hpp"
#include "base/random.hpp"
#include "sched/wait/waiter.hpp"
#include "sched/worker/standstill.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class deadlock_finder;
class idle_workers;
class idler;
class outside_work;
class run_end;
class run_state;
class side_calls;
class timer_seam;

class virtual_time {
 public:
  struct parts {
    clock_source& clock;
    idle_workers& idle;
    side_calls& calls;
    const outside_work& outside;
    const run_state& state;
    run_end& end;
    deadlock_finder& deadlocks;
    const atomic<nanos>& next_deadline;
    timer_seam* const& timers;  // attached before the first run
  };

  virtual_time(const parts& of, std::uint64_t seed) noexcept
      : at_instant(seed), of_(of), dice_(seed) {}

  // Decides which of several goes first: fibers, cases of a select, timers due at one
  // instant.
  random& dice() noexcept { return dice_; }

  void begin_run() noexcept {
    calls_given_up_at_ = 0;
    at_instant.begin_run();
  }

  // Called when nothing is ready and no timer is due. True if a timer is due now, since
  // the clock has jumped.
  bool has_jumped(idler& w) noexcept;

  // Parks until nothing else can run at this instant. Throws wrong_place on real time.
  void settle();

  standstill at_instant;

 private:
  void sleep_alone(idler& w, bool for_outside_work) noexcept;
  void sleep_for_calls(idler& w) noexcept;

  const parts of_;
  random dice_;
  nanos calls_given_up_at_ = 0;  // while the run ends; 0: not yet set
  // settle(): one fiber at a time.
  waiter* settler_ = nullptr;
  ticket settler_ticket_ = 0;
};

}  // namespace VIGIL_DETAIL
