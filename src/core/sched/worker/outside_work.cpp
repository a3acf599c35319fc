#include "core/sched/worker/outside_work.hpp"

#include "core/sched/idle/idle.hpp"
#include "core/sched/worker/timer_board.hpp"
#include "core/sched/worker/worker.hpp"

namespace VIGIL_DETAIL {

void outside_work::end() noexcept {
  if ((announced_.fetch_sub(1) & low_half) != 1) return;
  main_.something_ended();  // it may have been the last thing that the main fiber waited for
  // A worker may have to report a deadlock, or to let virtual time go on.
  idle_.wake_all();
}

// The worker looks at the count once the fiber is off its stack, as it does for a
// deadline.
void outside_work::io_begins() noexcept {
  if (pending_io_.fetch_add(1) == 0) current_worker()->cover_before_user_code = true;
}

// The caller may go on computing, so a worker is sent to the watch. A worker that leaves
// the watch at the same time gives it up before it looks whether there are any executors
// (cover()); here it is the other way round. All sequentially consistent, so one sees the
// other.
void outside_work::io_executor_begins() noexcept {
  add();
  if (io_executors_.fetch_add(1) == 0) idle_.staff_watch();
}

void outside_work::io_executor_ends() noexcept {
  io_executors_.fetch_sub(1);
  end();
}

// Wakes workers only if the last of them may have looked meanwhile. A worker lies down
// first and then looks at the outside work; here it is the other way round. All
// sequentially consistent, so one sees the other.
void outside_work::leave() noexcept {
  if ((announced_.fetch_sub(1) & low_half) == 1) {
    main_.something_ended();
    board_.look_again_at_rest();
  }
  visitors_.leave();  // the last touch; the destructor waits for it
}

}  // namespace VIGIL_DETAIL
