// idler: how a worker that has nothing to run looks, lies down and gets up: its side of
// the protocol in idle.hpp.
//
//   running ──▶ looking ──▶ lying down ──▶ asleep
//      ▲         │   ▲          │            │
//      └─────────┘   └──────────┴────────────┘
//        found
//
// A worker counts as looking from start_looking() until stop_looking(), except from
// lying down (IS1) to getting up. In between it rests each time it has found nothing, and
// then looks around again.
//
// Invariants
//   - looking_ is true exactly while the worker is between the two calls, so that
//     idle_workers counts it once.
//   - It never sleeps without its last look, sees_work(), after it has published that
//     it sleeps (IS2).
//   - just_woke_ is true from a sleep to the fiber, or the lack of one, that follows: each
//     wake-up is counted once, as useful or needless.
//
// The worker's thread alone uses it, except start_looking() before that thread runs,
// and place(), which others move and wake under the lock of idle_workers. It has no lock
// of its own.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/idle/idle.hpp"
#include "core/sched/worker/worker_counters.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace VIGIL_DETAIL {

class clock_turns;
class injection_queue;
class scheduler;

class idler {
 public:
  // The last three are its worker's own.
  idler(scheduler& of,
        const injection_queue& inbox,
        clock_turns& turns,
        worker_counters& counters) noexcept
      : sched_(of), inbox_(inbox), turns_(turns), counters_(counters) {}

  bool is_looking() const noexcept { return looking_; }

  // The worker counts as looking from now on, even before its thread does.
  void start_looking() noexcept;

  // Called before user code is entered, which takes so many callbacks. True if others
  // sleep: the caller then covers the next deadline.
  bool stop_looking(std::size_t callbacks) noexcept;

  // Called when there is work for another worker. `is_one`: it is one fiber, which most
  // likely goes on here as soon as the present one waits for it.
  void share(bool is_one) noexcept;

  // Caller: looks, and has found nothing to run. Returns when it is time to look again.
  void rest() noexcept;

  // Called when a fiber was found.
  void found_one() noexcept {
    if (std::exchange(just_woke_, false)) counters_.wakes_useful.add();
  }

  // The last look (IS2): whether the worker must not sleep. Caller: has lain down.
  bool sees_work() noexcept;

  sleeper& place() noexcept { return place_; }

 private:
  bool lie_down() noexcept;
  void sleep(nanos now) noexcept;
  nanos not_before(nanos now) noexcept;

  scheduler& sched_;
  const injection_queue& inbox_;
  clock_turns& turns_;
  worker_counters& counters_;
  sleeper place_;
  bool looking_ = false;
  bool just_woke_ = false;
  std::uint32_t short_sleeps_ = 0;  // in a row
};

}  // namespace VIGIL_DETAIL
