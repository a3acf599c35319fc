#include "core/sched/worker/timer_board.hpp"

#include "core/sched/worker/scheduler.hpp"

namespace VIGIL_DETAIL {

void timer_board::deadline_lowered(nanos deadline, bool parking) noexcept {
  worker* const w = current_worker();
  if (of_.clock.is_virtual()) {
    // The board's worker may sleep while others run, with nothing to come.
    if (w == nullptr || &w->sched.board != this) of_.idle.wake_all();
    return;
  }
  if (parking) {
    // The worker looks once the fiber is off its stack. If it finds user code to run
    // first, it covers the deadline before it enters that.
    w->cover_before_user_code = true;
    return;
  }
  of_.idle.cover(deadline);
}

void timer_board::callbacks_came_due() noexcept {
  if (of_.idle.asleep() != 0) current_worker()->idling.share(false);
}

// The last worker lies down without a deadline first, and then looks; here it is the
// other way round. All sequentially consistent, so one sees the other. On virtual time a
// deadline does not end the worker's sleep.
void timer_board::look_again_at_rest() noexcept {
  const bool may_rest = of_.clock.is_virtual() || next_deadline.load() == never;
  if (may_rest && of_.idle.asleep() == of_.workers) of_.idle.wake_all();
}

void timer_board::cover() noexcept {
  if (of_.outside.awaits_io()) of_.idle.staff_watch();
  of_.idle.cover(next_deadline.load());
}

void timer_board::cover_owed() noexcept {
  worker& w = *current_worker();
  if (!w.cover_before_user_code) return;
  w.cover_before_user_code = false;
  cover();
}

}  // namespace VIGIL_DETAIL
