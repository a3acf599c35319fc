// Outside work, and threads that have come to hand something over: what their end
// may have to set going.
#include "sched/scheduler.hpp"

namespace vigil::internal {

void scheduler::end_outside_work() noexcept {
  if ((outside_.fetch_sub(1) & low_half) != 1) return;
  tell_main();  // it may have been the last thing that the main fiber waited for
  // A worker may have to report a deadlock, or to let virtual time go on.
  idle_.wake_all();
}

// Who calls may go on computing. A worker that leaves the watch at the same time has
// given it up before it looks whether there are any (cover()); here it is the other
// way round. All sequentially consistent, so one sees the other.
void scheduler::io_executor_begins() noexcept {
  add_outside_work();
  if (io_executors_.fetch_add(1) == 0) idle_.staff_watch();
}

void scheduler::io_executor_ends() noexcept {
  io_executors_.fetch_sub(1);
  end_outside_work();
}

// Workers are woken only if the last of them may have looked meanwhile. It lies
// down without a deadline first, and looks at the outside work then; here it is the
// other way round. All sequentially consistent, so one sees the other. On virtual
// time a deadline does not end its sleep, and at the end of a deadlocked run it is the
// stop limit, which need not be waited for (can_only_give_up).
void scheduler::leave() noexcept {
  if ((outside_.fetch_sub(1) & low_half) == 1) {
    tell_main();
    const bool at_rest = is_virtual() || next_deadline.load() == never || deadlocked_.load();
    if (at_rest && idle_.asleep() == workers_.size()) idle_.wake_all();
  }
  visitors_.leave();
}

}  // namespace vigil::internal
