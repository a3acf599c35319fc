// timer_seam: what the scheduler needs of a timer service, so that sched, chan
// and sync need not know `timer`. The timer layer fills it.
#pragma once

#include "base/nanos.hpp"
#include "sched/wait/waiter.hpp"

#include <vigil/detail/site.hpp>
#include <vigil/stats.hpp>

#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

// A referenced timer that is pending, for who asks what holds the program.
struct timer_holder {
  site made_at;
  nanos deadline;
  bool periodic;
};

class timer_seam {
 public:
  virtual ~timer_seam() = default;

  // --- deadlines of waits; caller: the waiting fiber
  // The ticket of w is claimed with outcome::timeout at the deadline. The
  // caller parks right after: no worker is woken for it, the parking one looks.
  // Throws std::bad_alloc, with nothing armed.
  virtual void arm(waiter& w, ticket t, nanos deadline) = 0;
  // The wait has ended otherwise. When it returns, nothing of the timer
  // touches w any more.
  virtual void disarm(waiter& w) noexcept = 0;
  // The fiber ends; its timer record is given back.
  virtual void forget(waiter& w) noexcept = 0;

  // --- for workers
  // Makes scheduler::next_deadline exact: takes in what was armed, drops dead
  // entries. False if there is more to do: it works in slices, but in virtual
  // time next_deadline is exact after one call. Caller: a worker on its own
  // stack, about to sleep or to jump.
  virtual bool tidy() noexcept = 0;
  // The second earliest deadline, for the deputy.
  virtual nanos second_deadline() noexcept = 0;
  // Whether timers are pending at all; dead entries do not count.
  virtual bool anything_pending() noexcept = 0;
  // Whether one that is pending has come due by `now`; dead entries do not count.
  // Any thread.
  virtual bool anything_due(nanos now) noexcept = 0;
  // Whether a referenced timer is pending. Counted only if the scheduler waits
  // for all; exact if there is no fiber and no outside work meanwhile.
  virtual bool holds_program() const noexcept = 0;
  // Up to `room` of them, and how many there are; walks the heap.
  virtual std::size_t list_holders(timer_holder* out, std::size_t room) noexcept = 0;
  // Due callbacks wait for a fiber that runs them, besides those that take_runner() has
  // been called for.
  virtual bool has_callbacks() const noexcept = 0;
  // A fiber that will run one or more, to be entered at once; nullptr if there is none.
  virtual fiber* take_runner() noexcept = 0;
  // What the fiber has deferred may run from now on. Caller: the fiber itself;
  // locks of a lower rank than the queue of callbacks may be held.
  virtual void release_deferred(fiber& f) noexcept = 0;
  // --- a run begins; caller: the thread that calls run()
  // Makes the timer fiber and the reserved runner. Throws as make_fiber does.
  virtual void open() = 0;
  // The run did not begin after all.
  virtual void abort_open() noexcept = 0;

  // --- the shutdown; caller: the main fiber, after the last user fiber
  // Destroys the captures of callbacks that were never started. User code.
  virtual void discard_callbacks() noexcept = 0;
  // Ends the system fibers.
  virtual void end_fibers() noexcept = 0;

  // Async-signal-safe.
  virtual void add_stats(runtime_stats& s) const noexcept = 0;
};

}  // namespace vigil::inline VIGIL_ABI::detail
