// select: waits for several things at once, takes one, and leaves no trace of
// the others.
//
//   look    the cases in the order of a draw, each under its own lock; the
//           first that is ready is taken. Timers that are far from due are left
//           out, so that one beside a ready channel costs no clock read
//   queue   none was: all locks, in their order (case_lock); look again, at
//           all of them at one instant; then a place in each queue, all with
//           one ticket
//   wait    unlock, park; the place that has won says which case it was
//   undo    the other places are taken back
//
// A case for which "ready" may be a false alarm is taken without the locks; if it was
// one, all but the first step is done again.
//
// Each kind of case has a case_table (sched/wait/case_table.hpp).
//
// SE1 A select that says "nothing is ready" (otherwise, a timeout of zero) has
//     looked at all cases while it held all their locks.
// SE2 No lock is held while it parks: a claim before it has parked leaves
//     word in park_state (park.hpp).
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// The cases of a select that waits. It lies on the waiter's stack, or beside the wait of
// a task (awaited::object).
struct shown_select {
  select_case* const* cases;
  std::size_t count;
};

}  // namespace VIGIL_DETAIL
