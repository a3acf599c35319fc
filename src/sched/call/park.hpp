// park: stops the running fiber. ready(f): makes a parked fiber run.
//
// The danger. A fiber that wants to wait puts itself where others find it and then leaves
// its stack. A thread that finds it in between would start it a second time, on a stack
// that is still in use.
//
// The rule, in two halves. The fiber does not release the lock of the place where it is
// found. It hands the lock to park(), and the worker, or the fiber that it hands over to,
// releases the lock after the switch:
//
//   fiber's stack    lock; list.push(self); park(lock)
//   another stack    PK1 park_state: running -> parked
//                    PK2 unlock                <- from here others find it
//                    PK3 other work            <- the fiber is not touched
//
// A timer or a stop needs no lock to find the fiber, and may come before PK1. ready()
// then finds `running` and leaves `notified`; PK1 finds that and makes the fiber runnable
// itself. So exactly one of PK1 and ready() queues it.
//
// caller    park() on a fiber; ready() from any thread, once for each park,
//           by the thread that claimed the waiter's ticket (waiter.hpp).
// commit    PK1 and PK2 run off the fiber's stack; they do not allocate, throw
//           or park.
// ordering  ready() releases and the worker acquires, through park_state or
//           the queue: what was written before ready() is visible after park().
#pragma once

#include "base/nanos.hpp"
#include "base/spinlock.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/wait/cancel_tree.hpp"
#include "sched/wait/waiter.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

namespace VIGIL_DETAIL {

// Leaves the stack until ready(). The overload without a lock is for a fiber that is
// found without one.
void park(awaited what) noexcept;
void park(awaited what, spinlock& lock) noexcept VIGIL_RELEASE(lock);

// Makes f runnable. On a worker of its runtime f goes next there, or behind the others;
// on any other thread, into the injection queue.
void ready(fiber& f, turn when = turn::next) noexcept;

// Ends the program if the fiber is under this_fiber::no_park.
VIGIL_FOR_IO void check_may_park(const fiber& self) noexcept;

// Waits with an open ticket, and a waiter that others can find already: arms the
// deadline, parks, disarms, and returns how the wait ended. If it ended by neither value
// nor closed, the caller unlinks the waiter. The lock, if any, is released in every case,
// even when this throws std::bad_alloc (then the wait is over, and the caller unlinks).
// Caller: keeps the limit's node; passes stoppable = false under a shield, while
// unwinding, and in a joining destructor.
outcome wait(fiber& self, ticket t, awaited what, const wait_limit& limit, bool stoppable);
outcome wait(
    fiber& self, ticket t, awaited what, const wait_limit& limit, bool stoppable, spinlock& lock)
    VIGIL_RELEASE(lock);

// Called after a wait that a stop has ended.
[[noreturn]] VIGIL_FOR_IO void throw_stopped(fiber& self);

// Called after a wait for a lock that the end of a deadlocked run has ended.
[[noreturn]] void throw_deadlock(fiber& self);

}  // namespace VIGIL_DETAIL
