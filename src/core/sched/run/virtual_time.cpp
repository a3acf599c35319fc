#include "core/sched/run/virtual_time.hpp"

#include "core/sched/call/caller.hpp"
#include "core/sched/run/deadlock.hpp"
#include "core/sched/run/run_end.hpp"
#include "core/sched/run/side_call.hpp"
#include "core/sched/worker/idler.hpp"

#include <vigil/error.hpp>

#include <utility>

namespace VIGIL_DETAIL {

// Sleeps until something comes in from outside, or from another runtime; not if it has
// come: once the worker counts as asleep, it looks again.
template <class F>
void virtual_time::sleep_unless(idler& w, nanos until, F has_come) noexcept {
  sched_.idle().start_looking();
  sched_.idle().lie_down(w.place(), until, never);
  if (w.sees_work() || has_come()) {
    sched_.idle().stay_awake(w.place());
  } else {
    sched_.idle().sleep(w.place());
  }
  sched_.idle().stop_looking();
}

bool virtual_time::has_jumped(idler& w) noexcept {
  if (calls_.under_way() != 0) {
    if (!calls_.take_in()) sleep_for_calls(w);  // time stands still
    return false;
  }
  if (sched_.outside.any()) {
    sleep_unless(w, never, [this] { return !sched_.outside.any(); });  // time stands still
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
  sched_.timers().tidy();
  const nanos next = sched_.board.next_deadline.load();
  if (next == never) {
    // Nothing is pending, and maybe nothing will ever come: a deadlock.
    sleep_unless(w, never, [this] {
      if (sched_.board.next_deadline.load() != never) return true;
      deadlocks_.look();
      return false;
    });
    return false;
  }
  if (next > sched_.clock.now()) {
    sched_.clock.jump_to(next);
    sched_.at_instant.begin_instant();
  }
  return true;
}

// Sleeps until a call comes in. The virtual clock stands still, so while the run ends
// the stop limit is counted on the real one.
void virtual_time::sleep_for_calls(idler& w) noexcept {
  nanos until = never;
  if (sched_.state.stopping()) {
    const nanos limit = end_.stop_limit();
    if (calls_given_up_at_ == 0) calls_given_up_at_ = saturating_add(monotonic_now(), limit);
    until = calls_given_up_at_;
    if (monotonic_now() >= until) end_.stop_limit_passed(limit);
  }
  sleep_unless(w, until, [this] { return calls_.under_way() == 0 || calls_.all_done(); });
}

void virtual_time::settle() {
  require_fiber("testing::settle");
  if (!sched_.clock.is_virtual())
    throw wrong_place("vigil::testing::settle: only inside testing::run_virtual");
  if (settler_ != nullptr) {
    throw wrong_place("vigil::testing::settle: another fiber is settling already");
  }
  caller self;
  if (self.may_not_wait()) self.refuse("testing::settle");
  settler_ticket_ = self.open();
  settler_ = &self.own_waiter();
  const outcome result = self.wait(settler_ticket_, wait_reason::settle);
  if (result == outcome::stopped) settler_ = nullptr;
  self.throw_if_ended(result);
}

}  // namespace VIGIL_DETAIL
