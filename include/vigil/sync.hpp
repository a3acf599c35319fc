// Locks, conditions and counters for fibers: mutex, shared_mutex,
// condition_variable, wait_group, semaphore, latch, once. Each has a header of its
// own; the rules for all of them stand here.
//
//   vigil::mutex m;
//   vigil::condition_variable changed;
//   {
//     std::unique_lock lock(m);
//     changed.wait(lock, [&] { return ready; });
//   }
//
// A fiber that waits here gives its worker to others; one that holds a vigil::mutex may
// sleep, receive, or wait for anything else, and may go on on another thread. (A
// std::mutex may not be held across a wait.) They work with std::unique_lock,
// std::scoped_lock, std::shared_lock and std::lock, whose headers are included here.
//
// Thread safety: everything may be called from fibers of any runtime and from plain
// threads, in any mix. None can be copied or moved. One may be destroyed when nobody
// waits in it or holds it, even right after the caller's own call has returned, while
// the call that let it return is on its last steps (but a `once` only when nobody calls
// it any more).
//
// A wait ends by the lock, the change or the count that it waits for; by the deadline of
// the `_for` and `_until` forms, never early, which is a result and no exception; by the
// end of the context that was given: `cancelled` is thrown; or by a stop of the fiber:
// `stopped` is thrown. A timeout of zero or less, and a deadline that has passed, only
// look (a condition variable releases its lock for that moment); one beyond the range of
// the clock never comes. A deadline of another clock is converted once, by its distance
// from that clock's now.
//
// A stop does not end the wait for a lock: lock(), lock_shared() and the relocking of a
// condition variable wait on. So two fibers that wait for each other's mutex keep a
// runtime from ending (options::stop_limit). Only a run that ends by a fatal deadlock
// (on_deadlock) ends such waits, when nothing else can be unwound any more: then lock()
// and lock_shared(), the timed forms too, throw `deadlock` in fibers, without the lock.
// But not under this_fiber::shield, while the fiber unwinds, or for the lock of a
// condition variable: if only these are left, options::stop_limit names them.
//
// On a plain thread the thread sleeps. Inside a handler on a worker's own stack a call
// that would wait throws wrong_place. The timed forms throw std::bad_alloc if their
// deadline cannot be armed.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/condition_variable.hpp>
#include <vigil/latch.hpp>
#include <vigil/mutex.hpp>
#include <vigil/once.hpp>
#include <vigil/semaphore.hpp>
#include <vigil/shared_mutex.hpp>
#include <vigil/wait_group.hpp>
