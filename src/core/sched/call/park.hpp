// park: stops the running fiber. ready(f): makes a parked fiber run.
//
// The danger. A fiber that wants to wait puts itself where others find it and then leaves
// its stack. A thread that finds it in between would start it a second time, on a stack
// that is still in use.
//
// The rule. Only the next stack, which the worker or the fiber that it hands over to is
// on, says that the fiber has left its own:
//
//   fiber's stack    lock; list.push(self); unlock     <- from here others find it
//                    park
//   another stack    PK1 park_state: running -> parked
//                    PK2 other work                    <- the fiber is not touched
//
// A thread that finds the fiber before PK1 calls ready(), which then finds `running` and
// leaves `notified`; PK1 finds that and makes the fiber runnable itself. So exactly one
// of PK1 and ready() queues it. No lock is held across the switch.
//
// caller    park() on a fiber; ready() from any thread, once for each park,
//           by the thread that claimed the waiter's ticket (waiter.hpp).
// commit    PK1 runs off the fiber's stack; it does not allocate, throw or park.
// ordering  ready() releases and the worker acquires, through park_state or
//           the queue: what was written before ready() is visible after park().
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/wait/cancel_tree.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

namespace VIGIL_DETAIL {

// Leaves the stack until ready(). For fibers of the library: the dump does not say since
// when.
void park(awaited what) noexcept;

// Makes f runnable. On a worker of its runtime f goes next there, or behind the others;
// on any other thread, into the injection queue.
void ready(fiber& f, run_order when = run_order::next) noexcept;

// Ends the program if the fiber is under this_fiber::no_park.
VIGIL_FOR_IO void check_may_park(const fiber& self) noexcept;

// Waits with an open ticket, and a waiter that others can find already: arms the
// deadline, parks, disarms, and returns how the wait ended. If it ended by neither value
// nor closed, the caller unlinks the waiter; so it does when this throws std::bad_alloc,
// and then the wait is over. Caller: holds no lock.
// Caller: keeps the limit's node; passes stoppable = false under a shield, while
// unwinding, and in a joining destructor.
outcome wait(fiber& self, ticket t, awaited what, const wait_limit& limit, bool stoppable);

// Called after a wait that a stop has ended.
[[noreturn]] VIGIL_FOR_IO void throw_stopped(fiber& self);

// Called after a wait for a lock that the end of a deadlocked run has ended.
[[noreturn]] void throw_deadlock(fiber& self);

}  // namespace VIGIL_DETAIL
