// alarm_distance: how far ahead the deputy's alarm of idle.hpp is set.
//
// A ring costs more than an event, so under traffic an alarm that rings often is dear.
// With one that is far, what comes while the worker that has left the watch computes is
// late. So the alarm is far as long as nearly all absences from the watch are short: the
// part of an absence that exceeds the promise is taken from a budget, a small share of
// all time, and while the budget is spent the alarm is near.
//
// Thread safety: guarded by its owner's lock.
#pragma once

#include "base/nanos.hpp"

#include <algorithm>

namespace vigil::inline VIGIL_ABI::detail {

class alarm_distance {
 public:
  static constexpr nanos near = 75'000;
  static constexpr nanos far = 600'000;

  // `is_busy`: the watch is left often. For one that is left now and then it is near.
  nanos at(nanos now, bool is_busy = true) const noexcept {
    return is_busy && now >= near_until_ ? far : near;
  }

  // When an alarm rings that is set now, for a watch that was left at `left`: what came
  // since then waits no longer than that.
  nanos rings_at(nanos left, nanos now, bool is_busy = true) const noexcept {
    constexpr nanos worth_it = 25'000;  // about what falling asleep takes
    return std::max(left + at(now, is_busy), now + worth_it);
  }

  // Called when what came while nobody was in the watch, for `length`, is no more left to
  // an alarm.
  void note_absence(nanos now, nanos length) noexcept {
    const nanos late = std::min(length - promised, far);
    if (late <= 0 || now < near_until_) return;
    near_until_ = std::max(near_until_, now - at_once * share) + late * share;
  }

 private:
  static constexpr nanos promised = 100'000;  // how late an event may be: P7
  static constexpr nanos share = 200;         // one part of so many may be later
  static constexpr nanos at_once = 500'000;   // of which so much, and an absence, at a time

  nanos near_until_ = 0;
};

}  // namespace vigil::inline VIGIL_ABI::detail
