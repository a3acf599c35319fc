// watch_absences: how often the watch of idle.hpp is left and for how long, and so
// whether an alarm takes the place of a wake-up and how far ahead it is set.
//
// A ring costs more than an event, so under traffic an alarm that rings often is dear. A
// far one rings rarely, but if the worker that has left the watch computes, events wait
// for the alarm. So the alarm is far as long as nearly all absences are short: the part
// of an absence that exceeds the promise is taken from a budget, a small share of all
// time, and while the budget is spent the alarm is near.
//
// Thread safety: guarded by its owner's lock.
#pragma once

#include "base/nanos.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

class watch_absences {
 public:
  static constexpr nanos near = 75'000;
  static constexpr nanos far = 600'000;

  // --- what happens
  // Called when the watch becomes free while others sleep.
  void begin(nanos now) noexcept {
    quick_leaves_ = now - left_at_ < often ? quick_leaves_ + 1 : 0;
    left_at_ = uncounted_since_ = now;
  }

  // Called when a worker comes to the watch, or for work: events since the watch became
  // free, or since the last call, are left to the alarm no longer.
  void count(nanos now) noexcept {
    const nanos late = std::min(now - uncounted_since_ - promised, far);
    uncounted_since_ = now;
    if (late <= 0 || now < near_until_) return;
    near_until_ = std::max(near_until_, now - at_once * share) + late * share;
  }

  // Called when the deputy takes over: the next worker is not to wait for an alarm.
  void taken_over() noexcept { quick_leaves_ = 0; }

  // --- what follows
  // Whether the watch is left often.
  bool is_busy() const noexcept { return quick_leaves_ >= leaves_before_busy; }

  // Whether an alarm is set now, and nobody woken.
  bool sets_alarm(nanos now) const noexcept { return is_busy() && length(now) < often; }

  // How long ago the watch was left last.
  nanos length(nanos now) const noexcept { return now - left_at_; }

  // How far ahead an alarm is set. For a watch that is left now and then it is near.
  nanos distance(nanos now) const noexcept { return is_busy() && now >= near_until_ ? far : near; }

  // When an alarm rings that is set now. Events since the watch was left wait for the
  // distance at most, or for a moment from now.
  nanos rings_at(nanos now) const noexcept {
    constexpr nanos moment = 25'000;  // about what falling asleep takes
    return std::max(left_at_ + distance(now), now + moment);
  }

  // Tests change it before workers run.
  unsigned leaves_before_busy = 4;

 private:
  static constexpr nanos often = 500'000;     // quick leaves are at most so far apart
  static constexpr nanos promised = 100'000;  // how late an event may be: P7
  static constexpr nanos share = 200;         // one part of so many may be later
  static constexpr nanos at_once = 500'000;   // of which so much, and an absence, at a time

  nanos left_at_ = 0;
  nanos uncounted_since_ = 0;
  nanos near_until_ = 0;
  unsigned quick_leaves_ = 0;  // in a row
};

}  // namespace VIGIL_DETAIL
