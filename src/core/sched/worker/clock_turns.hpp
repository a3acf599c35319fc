// clock_turns: when a busy worker looks at what comes by itself: at the clock, for due
// timers, and at the watch, for I/O.
//
// The danger. A worker that has fibers never comes to its last look before sleep, so
// without these looks timers, I/O and the injection queue would wait for as long as
// its queue lasts. But reading the clock costs as much as a switch.
//
// The rule. By time: between quick switches the clock is read about once a microsecond,
// and at each switch when fibers run longer than that. A worker that looks for work, and
// virtual time, read it each time. By turns: each 61st turn of the worker, since it came
// out of the watch, begins with the watch and the injection queue.
//
// Invariants
//   - 1 <= until_clock_ <= tuning::most_turns: a deadline is seen after so many switches at most.
//   - last_clock_ is the clock as due() read it last. If due() is true, the next call
//     reads the clock again: a yield asks first, the worker right after.
//   - turn_ < fairness_turns.
//
// The owner's thread alone uses it. The two words that it is given are shared by all
// workers: next_deadline is the timer layer's, next_poll a hint that any worker writes.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/idle/tuning.hpp"
#include "core/sched/idle/watch_slot.hpp"

#include <algorithm>
#include <cstdint>

namespace VIGIL_DETAIL {

class clock_turns {
 public:
  clock_turns(const clock_source& clock,
              const atomic<nanos>& next_deadline,
              atomic<nanos>& next_poll,
              const watch_slot& watches,
              bool looks_each_turn) noexcept
      : next_deadline_(next_deadline),
        next_poll_(next_poll),
        looks_each_turn_(looks_each_turn),
        clock_(clock),
        watches_(watches) {}

  // --- by time
  // Whether the earliest deadline has come, or the time to look for I/O. `is_looking`:
  // the worker has nothing to run.
  bool due(bool is_looking) noexcept {
    // Pairs with the seq_cst writes of the timer layer.
    const nanos deadline = next_deadline_.load(order::acquire);
    // ordering: a hint.
    const nanos next = std::min({deadline, next_poll_.load(order::relaxed), share_at_});
    if (next == never) return false;
    ++since_clock_;
    if (until_clock_ > 1) {
      --until_clock_;
      return false;
    }
    return has_come(next, is_looking);
  }

  // Caller: due() is true. Looks for I/O if it is time; true if the deadline has come.
  bool deadline_has_come() noexcept;

  // The next due() reads the clock.
  void read_clock_next() noexcept { until_clock_ = 1; }

  // The next due() calls do not read the clock: a few turns are for other fibers first.
  void read_clock_later() noexcept { until_clock_ = tuning::most_turns; }

  // The worker keeps what it has made ready for a moment: most of it is done sooner than
  // another worker would wake for it. docs/internals/workers.md
  void share_soon() noexcept {
    if (share_at_ == never) share_at_ = monotonic_now() + tuning::batch;
  }

  void share_no_more() noexcept { share_at_ = never; }

  // Whether the moment is over: true once. For work without a switch in between.
  bool is_time_to_share() noexcept {
    if (share_at_ == never || monotonic_now() < share_at_) return false;
    share_at_ = never;
    return true;
  }

  // The same, as due() saw the clock.
  bool shares_now() noexcept {
    if (share_at_ > last_clock_) return false;
    share_at_ = never;
    return true;
  }

  // Called after a sleep: the next due() reads the clock, and the next looks for I/O are
  // put off, since the watch takes I/O in while a worker sleeps there.
  void slept(bool in_watch) noexcept;

  // --- by turns
  void begin_turn() noexcept { turn_ = next_is_for_others() ? 0 : turn_ + 1; }

  // Caller: next_is_for_others() is false.
  void begin_own_turn() noexcept { ++turn_; }

  bool is_for_others() const noexcept { return turn_ == 0; }

  bool next_is_for_others() const noexcept { return turn_ == tuning::fairness_turns - 1; }

  // The number of the source, of n, that comes first: another one each turn.
  std::uint32_t first_of(std::uint32_t n) const noexcept { return turn_ % n; }

  // Takes in I/O that is ready.
  void poll() noexcept {
    watch& w = watches_.present();
    if (w.needs_poll()) w.poll();
  }

  // Counts a yield of a lone fiber as a turn if there is I/O to look for. True if the
  // next turn is the one that looks.
  bool yields_to_io() noexcept {
    if (!watches_.present().needs_poll()) return false;
    begin_turn();
    return next_is_for_others();
  }

 private:
  bool has_come(nanos next, bool is_looking) noexcept;

  const atomic<nanos>& next_deadline_;
  atomic<nanos>& next_poll_;
  const bool looks_each_turn_;     // at the clock: a guest, which has so much time
  std::uint32_t until_clock_ = 1;  // turns
  std::uint32_t since_clock_ = 0;  // turns
  std::uint32_t turn_ = 0;
  nanos last_clock_ = 0;
  nanos share_at_ = never;
  nanos just_read_ = 0;  // the clock after a sleep, for the due() that follows at once
  const clock_source& clock_;
  const watch_slot& watches_;
};

}  // namespace VIGIL_DETAIL
