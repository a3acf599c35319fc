// The scheduler's half of virtual time: when nothing can run at this instant,
// and only then, the clock jumps to the next deadline.
#include "sched/caller.hpp"
#include "sched/scheduler.hpp"

#include <vigil/error.hpp>

#include <utility>

namespace vigil::internal {

fiber* scheduler::nothing_to_run(worker& w) noexcept {
  if (calls.under_way() != 0) {
    if (!calls.take_in()) sleep_for_calls(w);  // time stands still
    return nullptr;
  }
  if (outside.any()) {
    sleep_alone(w, true);  // time stands still
    return nullptr;
  }
  // Whoever ended the outside work readied something first, maybe after this
  // worker's look.
  if (w.sees_work()) return nullptr;
  if (settler_ != nullptr) {
    waiter* const settled = std::exchange(settler_, nullptr);
    if (settled->claim(settler_ticket_, outcome::value)) settled->deliver();
    return nullptr;
  }
  timers_->tidy();
  if (deadlocks.can_only_give_up(idle_.times_got_up()) && deadlocks.end_lock_waits())
    return nullptr;
  const nanos next = next_deadline.load();
  if (next == never) {
    sleep_alone(w, false);
    return nullptr;
  }
  if (next > clock.now()) clock.jump_to(next);
  return take_timer_fiber();
}

// Until a call comes in. The virtual clock stands still, so while the run ends
// the real one counts the stop limit.
void scheduler::sleep_for_calls(worker& w) noexcept {
  nanos until = never;
  if (state.stopping()) {
    const nanos limit = end.stop_limit();
    if (calls_given_up_at_ == 0) calls_given_up_at_ = saturating_add(monotonic_now(), limit);
    until = calls_given_up_at_;
    if (monotonic_now() >= until) end.stop_limit_passed(limit);
  }
  idle_.start_looking();
  idle_.lie_down(w.place, until, never);
  if (w.sees_work() || calls.under_way() == 0 || calls.all_done()) {
    idle_.stay_awake(w.place);
  } else {
    idle_.sleep(w.place);
  }
  idle_.stop_looking();
}

// Until something comes in from outside, or from another runtime. Without outside
// work nothing is pending, and it may be that nothing will ever come.
void scheduler::sleep_alone(worker& w, bool for_outside_work) noexcept {
  idle_.start_looking();
  idle_.lie_down(w.place, never, never);
  const bool goes_on =
      w.sees_work() || (for_outside_work ? !outside.any() : next_deadline.load() != never);
  if (goes_on) {
    idle_.stay_awake(w.place);
  } else {
    if (!for_outside_work) deadlocks.look();
    idle_.sleep(w.place);
  }
  idle_.stop_looking();
}

void scheduler::settle() {
  require_fiber("testing::settle");
  if (!is_virtual()) throw wrong_place("vigil::testing::settle: only inside testing::run_virtual");
  if (settler_ != nullptr) {
    throw wrong_place("vigil::testing::settle: another fiber is settling already");
  }
  caller self;
  if (self.may_not_wait()) self.refuse("testing::settle");
  settler_ticket_ = self.open();
  settler_ = &self.self();
  const outcome how = self.wait(settler_ticket_, wait_reason::settle);
  if (how == outcome::stopped) settler_ = nullptr;
  self.throw_if_ended(how);
}

}  // namespace vigil::internal
