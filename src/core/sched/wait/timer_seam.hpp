// timer_seam: the functions that the scheduler needs from a timer service, so that sched,
// chan and sync need not know `timer`. The timer layer fills it.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/site.hpp>
#include <vigil/stats.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// A referenced timer that is pending, for the list of things that hold the program.
struct timer_holder {
  site made_at;
  nanos deadline;
  bool periodic;
};

class timer_seam {
 public:
  virtual ~timer_seam() = default;

  // --- deadlines of waits; caller: the waiting fiber
  // Claims the ticket of w with outcome::timeout at the deadline. The caller parks right
  // after: no worker is woken for it, its own worker looks. Throws std::bad_alloc, with
  // nothing armed.
  virtual void arm(waiter& w, ticket t, nanos deadline) = 0;
  // The wait has ended otherwise. When it returns, the timer does not touch w any more.
  virtual void disarm(waiter& w) noexcept = 0;
  // The fiber ends; its timer record is given back.
  virtual void forget(waiter& w) noexcept = 0;

  // --- for workers
  // Makes timer_board::next_deadline exact: takes in the timers that were armed, drops
  // dead entries. It works in slices: false if there is more to do. On virtual time
  // next_deadline is exact after one call. Caller: a worker on its own stack, about to
  // sleep or to let the clock jump.
  virtual bool tidy() noexcept = 0;
  // The second earliest deadline, for a second sleeper.
  virtual nanos second_deadline() noexcept = 0;
  // Whether timers are pending at all; dead entries do not count.
  virtual bool anything_pending() noexcept = 0;
  // Whether a pending timer is due by `now`; dead entries do not count. Any thread.
  virtual bool anything_due(nanos now) noexcept = 0;
  // Whether a referenced timer is pending. Counted only under exit_when::all_done; exact
  // if neither a fiber nor outside work exists meanwhile.
  virtual bool holds_program() const noexcept = 0;
  // Writes up to `room` of them to `out`; returns how many there are. Walks the heap.
  virtual std::size_t list_holders(timer_holder* out, std::size_t room) noexcept = 0;
  // Whether due callbacks wait for a fiber that runs them. One that was entered for them
  // may not have taken its own yet.
  virtual bool has_callbacks() const noexcept = 0;
  // A fiber that will run one or more, to be entered at once; nullptr if there is none.
  virtual fiber* take_runner() noexcept = 0;
  // Lets the functions run that the fiber has deferred. Caller: the fiber itself.
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

}  // namespace VIGIL_DETAIL
