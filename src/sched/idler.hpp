// idler: how a worker that has nothing to run looks, naps, lies down and gets up: its
// side of the protocol in idle.hpp.
//
//   running ──▶ looking ──▶ lying down ──▶ asleep
//      ▲         │ ▲ ▲ └──▶ napping │         │
//      └─────────┘ │ └───────┘      │         │
//        found     └────────────────┴─────────┘
//
// A worker counts as looking from start_looking() until stop_looking(), except from
// lying down (IS1) to getting up. In between it naps or rests each time it has found
// nothing, and then looks around again.
//
// Invariants
//   - looking_ is true exactly while the worker is between the two calls, so that
//     idle_workers counts it once.
//   - It never sleeps without its last look, sees_work(), after it has published that
//     it sleeps (IS2).
//   - just_woke_ is true from a sleep or nap to the fiber, or the lack of one, that
//     follows: each wake-up is counted once, as useful or needless. A wake-up for the
//     decay of stacks is neither.
//
// The worker's thread alone uses it, except start_looking() before that thread runs,
// and the note of place(), which others wake. It has no lock of its own.
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"
#include "sched/idle.hpp"
#include "sched/worker_counters.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace VIGIL_DETAIL {

class clock_turns;
class deadlock_finder;
class pinned_inbox;
class ready_work;
class run_state;
class signal_hub;
class stuck_watch;
class timer_seam;

// A worker naps after so many wake-ups in vain, at most so often in a row; tests
// change it.
struct nap_limits {
  atomic<unsigned> after{4};
  atomic<unsigned> in_a_row{20};
};

class idler {
 public:
  struct parts {
    idle_workers& idle;
    const ready_work& work;
    deadlock_finder& deadlocks;
    const signal_hub& signals;
    const run_state& state;
    const atomic<nanos>& next_deadline;
    const nap_limits& naps;
    const std::size_t workers;  // how many there are
    const bool is_virtual;
    // Its worker's own.
    const pinned_inbox& inbox;
    clock_turns& turns;
    worker_counters& counters;
  };

  explicit idler(const parts& of) noexcept : of_(of) {}

  bool is_looking() const noexcept { return looking_; }

  // The worker counts as looking from now on, even before its thread does.
  void start_looking() noexcept;

  // Called before user code is entered. True if others sleep or nap: the caller then
  // covers the next deadline.
  bool stop_looking() noexcept;

  // Called when there is work for another worker: wakes one, if one sleeps; after a
  // moment if the alarm of idle.hpp is set, since this worker most likely does it sooner.
  // `is_one`: it is one fiber.
  void share(bool is_one) noexcept;

  // Called when the run is over: no other worker need be woken.
  void end_looking() noexcept {
    if (std::exchange(looking_, false)) of_.idle.stop_looking();
  }

  // Caller: looks, and has found nothing to run. Returns when it is time to look again.
  void rest(timer_seam& timers) noexcept;

  // Called when a fiber was found.
  void found_one() noexcept {
    found_on_waking_ = std::exchange(just_woke_, false);
    if (found_on_waking_) {
      of_.counters.wakes_useful.add();
      before_found_ = std::exchange(woken_in_vain_, woken_in_vain_ / 2);
    }
    naps_before_ = std::exchange(naps_, 0);
  }

  // Called by that fiber: it had nothing to do, so the worker was woken in vain after
  // all.
  void found_one_in_vain() noexcept {
    if (!std::exchange(found_on_waking_, false)) return;
    woken_in_vain_ = before_found_ < most_in_vain ? before_found_ + 1 : most_in_vain;
    naps_ = naps_before_;
  }

  // The last look (IS2): whether the worker must not sleep. Caller: has lain down.
  bool sees_work() noexcept;

  sleeper& place() noexcept { return place_; }

  // options::stuck_limit, for a run; nullptr without it.
  void set_stuck_watch(stuck_watch* stuck) noexcept { stuck_ = stuck; }

 private:
  bool nap() noexcept;
  bool leaves_dead_ones(nanos now, nanos& longest) noexcept;
  bool lie_down(timer_seam& timers, nanos longest) noexcept;
  void stay_awake() noexcept;
  void sleep(nanos now) noexcept;
  bool must_end_lock_waits(std::uint64_t& none_left) noexcept;
  bool ends_lock_waits(std::uint64_t wake_count) noexcept;
  nanos not_before(nanos now) noexcept;
  void woke_in_vain() noexcept;

  static constexpr std::uint32_t most_in_vain = 16;

  const parts of_;
  sleeper place_;
  stuck_watch* stuck_ = nullptr;
  bool looking_ = false;
  bool just_woke_ = false;
  bool woke_for_decay_ = false;      // and the stuck watch does not know that it is awake
  nanos tidied_at_ = 0;              // when it has last tidied the heap
  std::uint32_t short_sleeps_ = 0;   // in a row
  std::uint32_t woken_in_vain_ = 0;  // of late
  std::uint32_t before_found_ = 0;   // the same, before the last found_one()
  bool found_on_waking_ = false;     // that one was the first after a wake-up
  std::uint32_t naps_ = 0;           // in a row
  std::uint32_t naps_before_ = 0;    // the same, before the last found_one()
};

}  // namespace VIGIL_DETAIL
