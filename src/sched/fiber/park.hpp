// park: stops the running fiber. ready(f): makes a parked fiber run.
//
// The danger. A fiber that wants to wait puts itself where others find it and
// then leaves its stack. A thread that finds it in between would start it a second time,
// on a stack that is still in use.
//
// The rule, in two halves.
//
// A lock that guards the place where it can be found is not released by the
// fiber but handed to park(), and released after the switch, by the worker or
// by the fiber that it hands over to:
//
//   fiber's stack    lock; list.push(self); park(lock)
//   another stack    P1  park_state: running -> parked
//                    P2  unlock                <- from here others find it
//                    P3  other work            <- the fiber is not touched
//
// A timer or a stop needs no lock to find it, and may come before P1. ready()
// then finds `running`, leaves `notified`, and P1 finds that and makes the
// fiber runnable itself. So exactly one of P1 and ready() queues it.
//
// caller    park() on a fiber; ready() from any thread, once for each park,
//           by the thread that claimed the waiter's ticket (waiter.hpp).
// commit    P1 and P2 run off the fiber's stack; they do not allocate, throw
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

namespace vigil::inline VIGIL_ABI::detail {

using detail::wait_limit;

// Leaves the stack until ready(). The overload without a lock is for fibers
// that are found without one.
void park(wait_reason reason) noexcept;
void park(wait_reason reason, spinlock& lock) noexcept VIGIL_RELEASE(lock);

// Makes f runnable. On one of its runtime's workers it goes next there, or
// behind the others; elsewhere into the injection queue.
void ready(fiber& f, turn when = turn::next) noexcept;

// Ends the program if the fiber is under this_fiber::no_park.
VIGIL_FOR_IO void check_may_park(const fiber& self) noexcept;

// Waits with a ticket that is open, and a waiter that is already findable:
// arms the deadline, parks, disarms, and says how the wait ended. If it ended
// by neither value nor closed, the caller unlinks the waiter. The lock, if
// any, is released in every case, also when it throws std::bad_alloc (then the
// wait is over, and the caller unlinks). The caller keeps the limit's node. Not
// stoppable: under a shield, while unwinding, in a joining destructor.
outcome wait(fiber& self, ticket t, wait_reason why, const wait_limit& limit, bool stoppable);
outcome wait(
    fiber& self, ticket t, wait_reason why, const wait_limit& limit, bool stoppable, spinlock& lock)
    VIGIL_RELEASE(lock);

// What a wait that ended by a stop does next.
[[noreturn]] VIGIL_FOR_IO void throw_stopped(fiber& self);

// What a wait for a lock does that the end of a deadlocked run has ended.
[[noreturn]] void throw_deadlock(fiber& self);

}  // namespace vigil::inline VIGIL_ABI::detail
