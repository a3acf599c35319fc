#include "sched/run/virtual_time.hpp"

#include "sched/call/caller.hpp"
#include "sched/run/deadlock.hpp"
#include "sched/run/run_end.hpp"
#include "sched/run/side_call.hpp"
#include "sched/wait/timer_seam.hpp"
#include "sched/worker/idler.hpp"
#include "sched/worker/outside_work.hpp"
#include "sched/worker/scheduler.hpp"

#include <vigil/error.hpp>

#include <utility>

namespace VIGIL_DETAIL {

bool virtual_time::has_jumped(idler& w) noexcept {
  if (of_.calls.under_way() != 0) {
    if (!of_.calls.take_in()) sleep_for_calls(w);  // time stands still
    return false;
  }
  if (of_.outside.any()) {
    sleep_alone(w, true);  // time stands still
    return false;
  }
  // The thread that ended the outside work readied something first, maybe after this
  // worker's look.
  if (w.sees_work()) return false;
  if (settler_ != nullptr) {
    waiter* const settled = std::exchange(settler_, nullptr);
    if (settled->claim(settler_ticket_, outcome::value)) settled->deliver();
    return false;
  }
  of_.timers->tidy();
  if (of_.deadlocks.can_only_give_up(of_.idle.wake_count()) && of_.deadlocks.end_lock_waits())
    return false;
  const nanos next = of_.next_deadline.load();
  if (next == never) {
    sleep_alone(w, false);
    return false;
  }
  if (next > of_.clock.now()) {
    of_.clock.jump_to(next);
    at_instant.begin_instant();
  }
  return true;
}

// Sleeps until a call comes in. The virtual clock stands still, so while the run ends
// the stop limit is counted on the real one.
void virtual_time::sleep_for_calls(idler& w) noexcept {
  nanos until = never;
  if (of_.state.stopping()) {
    const nanos limit = of_.end.stop_limit();
    if (calls_given_up_at_ == 0) calls_given_up_at_ = saturating_add(monotonic_now(), limit);
    until = calls_given_up_at_;
    if (monotonic_now() >= until) of_.end.stop_limit_passed(limit);
  }
  of_.idle.start_looking();
  of_.idle.lie_down(w.place(), until, never);
  if (w.sees_work() || of_.calls.under_way() == 0 || of_.calls.all_done()) {
    of_.idle.stay_awake(w.place());
  } else {
    of_.idle.sleep(w.place());
  }
  of_.idle.stop_looking();
}

// Sleeps until something comes in from outside, or from another runtime. Without outside
// work nothing is pending, and maybe nothing will ever come: a deadlock.
void virtual_time::sleep_alone(idler& w, bool for_outside_work) noexcept {
  of_.idle.start_looking();
  of_.idle.lie_down(w.place(), never, never);
  const bool goes_on =
      w.sees_work() || (for_outside_work ? !of_.outside.any() : of_.next_deadline.load() != never);
  if (goes_on) {
    of_.idle.stay_awake(w.place());
  } else {
    if (!for_outside_work) of_.deadlocks.look();
    of_.idle.sleep(w.place());
  }
  of_.idle.stop_looking();
}

void virtual_time::settle() {
  require_fiber("testing::settle");
  if (!of_.clock.is_virtual())
    throw wrong_place("vigil::testing::settle: only inside testing::run_virtual");
  if (settler_ != nullptr) {
    throw wrong_place("vigil::testing::settle: another fiber is settling already");
  }
  caller self;
  if (self.may_not_wait()) self.refuse("testing::settle");
  settler_ticket_ = self.open();
  settler_ = &self.self();
  const outcome result = self.wait(settler_ticket_, wait_reason::settle);
  if (result == outcome::stopped) settler_ = nullptr;
  self.throw_if_ended(result);
}

}  // namespace VIGIL_DETAIL
