// The order in which locks are taken. A thread that holds a lock may only take
// one of a higher rank; debug builds check it at each lock.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

enum class lock_rank : unsigned char {
  runtime = 1,    // starting and ending a runtime
  fiber_join,     // one fiber's joiners
  clock_timer,    // one callback's timer on another clock than the runtime's
  timer_stops,    // the callers of stop_and_wait
  shutdown,       // the end of a run
  registry,       // one shard of the list of all fibers
  channel,        // one channel; several only in the order of their addresses
  sync,           // the waiters of one mutex, condition or counter
  io,             // one operation that a fiber waits for
  connections,    // the connections of one serve_each
  cancel_tree,    // one node of a context tree; several only from a parent down
  done_callback,  // arming the function of one after_func(ctx, f)
  run_listeners,  // the objects that are told when a run ends
  clocks,         // the timers that are told of steps of a clock
  timeout_lists,  // timeout lists by duration
  timeout_list,   // the entries of one
  timeout_run,    // which entry's on_expire is running
  timeout_rooms,  // rooms for entries that no list uses
  timer_outside,  // armings by threads that are not workers
  timer_heap,     // the heap, while entries are merged or popped
  intake,         // one intake
  callbacks,      // the queue of due callbacks
  runners,        // the pool of idle runner fibers
  side_calls,     // a runtime's functions on side pools
  side_pool,      // the queue of a side pool
  injection,      // fibers made ready from outside the workers
  inbox,          // fibers pinned to one worker
  idle,           // which workers sleep, and until when
  watch,          // the timer of a watch that has one
  records,        // free lists of type-stable records
  events,         // the flight recorder, for threads that are not workers
  last = events,
};

#ifndef NDEBUG
// The ranks held are kept per thread: locks are never held across a switch.
VIGIL_FOR_IO void lock_taken(lock_rank rank) noexcept;
// Takes one more lock of the rank taken last.
void lock_taken_beside(lock_rank rank) noexcept;
VIGIL_FOR_IO void lock_released(lock_rank rank) noexcept;
#else
inline void lock_taken(lock_rank) noexcept {}

inline void lock_taken_beside(lock_rank) noexcept {}

inline void lock_released(lock_rank) noexcept {}
#endif

}  // namespace VIGIL_DETAIL
