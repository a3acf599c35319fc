// Locks, conditions and counters for fibers: mutex, shared_mutex, condition_variable,
// wait_group, semaphore, latch and once. Each has its own header; the common rules are
// here.
//
// A waiting fiber gives up its worker. While it holds a vigil::mutex, unlike a
// std::mutex, it may wait for anything else and may continue on another thread. On a
// plain thread the thread sleeps. In a handler on a worker's own stack a call that would
// wait throws wrong_place.
//
// Thread safety: everything may be called from fibers of any runtime and from plain
// threads, in any mix. The objects cannot be copied or moved. One may be destroyed when
// nothing waits in it or holds it, even right after the caller's own wait has returned,
// while the call that ended it is still returning; a `once` only when nothing calls it
// any more.
//
// A wait ends when the lock, change or count comes; at the deadline of the `_for` and
// `_until` forms, never earlier, which is a result; with `cancelled` when the given
// context is done; and with `stopped` when the fiber is stopped, except the wait for a
// lock (lock(), lock_shared(), the relocking of a condition variable). Only a fatal
// deadlock that it is a part of ends that, with `deadlock` (docs/guide/stuck.md).
//
// A timeout of zero or less, and a deadline that has passed, only look; one beyond the
// clock's range never comes. A deadline of another clock is converted once, by its
// distance from that clock's now. The timed forms throw std::bad_alloc if their deadline
// cannot be armed.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/condition_variable.hpp>
#include <vigil/latch.hpp>
#include <vigil/mutex.hpp>
#include <vigil/once.hpp>
#include <vigil/semaphore.hpp>
#include <vigil/shared_mutex.hpp>
#include <vigil/wait_group.hpp>
