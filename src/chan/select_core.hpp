// select: waits for several things at once, takes one, and leaves no trace of
// the others.
//
//   look    the cases in the order of a draw, each under its own lock; the
//           first that is ready is taken. Timers that are far from due are left
//           out, so that one beside a ready channel costs no clock read
//   queue   none was: all locks, in the order of their addresses; look again,
//           at all of them at one instant; then a place in each queue, all
//           with one ticket
//   wait    unlock, park; the claim of the ticket says which case it was
//   undo    the places that were not claimed are taken back
//
// Everything that a select can wait for has a case_table.
//
// SE1 A select that says "nothing is ready" (otherwise, a timeout of zero) has
//     looked at all cases while it held all their locks.
// SE2 No lock is held while it parks: a claim before it has parked leaves
//     word in park_state (park.hpp).
#pragma once

#include "chan/channel_core.hpp"

#include <vigil/detail/select_case.hpp>

namespace vigil::inline VIGIL_ABI::detail {

using select_case = select_case;

// The cases of a select that waits. It lies on the waiter's stack (awaited::object).
struct shown_select {
  select_case* const* cases;
  std::size_t count;
};

struct case_table {
  // Without the lock: takes the case if it is ready, else says not_ready.
  channel_status (*look)(select_case& c) noexcept;
  // The lock of the queue that the case would be in; the same for equal objects.
  spinlock& (*lock)(void* object) noexcept;
  // Under the lock: takes the case if it is ready, else says not_ready.
  detail::attempt (*poll)(select_case& c) noexcept;
  // Under the lock: queues the queued_case in its place. Throws std::bad_alloc,
  // with nothing queued.
  void (*enqueue)(select_case& c);
  // The object stays alive between these two (CH5).
  void (*retain)(void* object) noexcept;
  void (*release)(void* object) noexcept;
  // After the wait, for the case that ended it: the value that came is the caller's now.
  void (*claim)(select_case& c) noexcept;
  // Under the lock: unlinks it if it is still queued.
  void (*retract)(select_case& c) noexcept;
};

}  // namespace vigil::inline VIGIL_ABI::detail
