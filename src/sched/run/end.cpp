// How a run begins and ends.
//
//   E0 exit_when::all_done: the main fiber's function has returned, and it waits
//      until all_done(), or for a stop
//   E1 the main fiber's function has returned, or a stop was asked for
//      (signal, request_stop, deadlock; a request_stop that came before the
//      run: ahead of the main fiber's function)              phase ending
//      then the root context is cancelled; while that takes, a fiber of ours
//      counts the grace and the stop limit (cancel_root)
//   E2 the grace passes (options::grace, or the longest that a server has
//      announced), or every other user fiber has ended, or a later signal of
//      options::stop_on comes (take_signals), or a fatal deadlock is found
//   E3 stopping_ is set, then every open stoppable wait is claimed as stopped:
//      a wait opened before is found there, one opened later sees the flag
//      (both sequentially consistent)                        phase stopping
//   E4 the main fiber, under a shield, waits until it is the last user fiber,
//      and no function of a fiber runs on a side pool, at most
//      options::stop_limit; then the program is aborted, by name
//   E5 no fiber can be started any more, but by the main fiber; captures of
//      callbacks that never started are destroyed there      phase closed
//   E6 the runner fibers and the timer fiber end; then the main fiber, and with
//      it the workers
//
// So the timer service outlives the last user fiber, and run() never returns
// with a fiber alive.
#include "sched/fiber/park.hpp"
#include "sched/run/outside_work.hpp"
#include "sched/run/process.hpp"
#include "sched/run/run_end.hpp"
#include "sched/run/signal_hub.hpp"
#include "sched/timer_seam.hpp"

#include <vigil/error.hpp>

#include <new>
#include <thread>

namespace vigil::inline VIGIL_ABI::detail {

run_end::run_end(const parts& with) noexcept
    : settings_(with.settings),
      clock_(with.clock),
      state_(with.state),
      fibers_(with.fibers),
      outside_(with.outside),
      calls_(with.calls),
      signals_(with.signals),
      visitors_(with.inside),
      timers_(with.timers),
      starter_(with.starter) {}

// The lock decides whether a request_stop() came before or finds the run.
bool run_end::open_run() {
  bool is_first = false;
  bool stops = false;
  {
    const lock_guard guard(lock_);
    is_first = state_.change_phase(run_phase::idle, run_phase::running);
    stops = signals_.stop_is_noted();
  }
  if (!is_first) throw wrong_place("vigil::runtime::run: this runtime is running already");
  return stops;
}

// The traces of a run go at its end, so that a stop that is asked for as the
// next one begins is not wiped out.
void run_end::close_run(bool has_begun) noexcept {
  state_.clear();
  // A request_stop() that came late must not stop the next run; but one that
  // would have stopped this one, had it begun, is still to do.
  const lock_guard guard(lock_);
  stopper_ = {};
  stopper_started_ = false;
  root_watch_ = {};
  since_.store(0);
  signals_.forget(!has_begun);
  state_.back_to_idle();
}

void run_end::set_main_fiber(fiber* main) noexcept {
  const lock_guard guard(lock_);
  main_fiber_ = main;
}

// After user code on the main fiber, which ends only when no timer runs any more.
void run_end::release_user_work(fiber& self) noexcept {
  self.destroy_locals();
  if (self.deferred != nullptr) timers_->release_deferred(self);
}

void run_end::finish_run(fiber& self) noexcept {
  process_check_fork("the end of vigil::run");
  ++self.shields;  // E4: nothing ends the main fiber's waits from now on
  note_begin();
  state_.advance(run_phase::ending);  // E1
  cancel_root();
  let_off(stopper_);
  wait_out_grace(self);               // E2
  stop_all();                         // E3
  outlive_others(self);               // E4
  state_.advance(run_phase::closed);  // E5
  for (;;) {
    timers_->discard_callbacks();
    // A capture's destructor may have deferred something, or started a fiber.
    release_user_work(self);
    outlive_others(self);
    if (!timers_->anything_pending()) break;
    // Somebody is in the middle of arming, stopping or firing one.
    std::this_thread::yield();
  }
  timers_->end_fibers();  // E6
  wait_for_system_fibers(self);
}

// No fiber but the main one, no outside work, no referenced timer, and all of it
// at one instant. Looked at one after the other: a fiber, or outside work, that
// was there in between has changed the upper half of its word. Without both
// nothing changes, neither pending I/O nor what timers hold (keepalive.hpp), and
// nothing can come but from threads that have announced nothing. A timer counts
// until its claim is taken, and who takes it is counted as alive before.
bool run_end::all_done() const noexcept {
  const std::uint64_t alive = fibers_.history();
  const std::uint64_t announced = outside_.history();
  if (fiber_registry::alive_in(alive) > 1 || outside_work::count_in(announced) != 0) return false;
  if (outside_.has_io() || timers_->holds_program()) return false;
  return fibers_.history() == alive && outside_.history() == announced;
}

bool run_end::others_left() const noexcept {
  return fibers_.alive() > 1 || calls_.under_way() != 0 || root_cancels_.load() != 0;
}

bool run_end::end_has_come() const noexcept {
  switch (what_) {
    case end_wait::all_done:
      return all_done();
    case end_wait::grace:
      return state_.stopping() || !others_left();
    case end_wait::others:
      return !others_left();
    case end_wait::system:
      break;
  }
  return fibers_.system() == 0;
}

// Caller: the main fiber, as in all below. Parks until the end of `what` has come,
// the deadline (outcome::timeout), or a stop, which ends a wait for all_done only. For
// the grace the deadline is what its end is now: look at it again afterwards.
// Without room for the deadline it does not wait: outcome::cancelled.
outcome run_end::wait_for_end(fiber& self, end_wait what, nanos deadline) noexcept {
  const bool for_all = what == end_wait::all_done;
  lock_.lock();
  if (what == end_wait::grace) deadline = grace_until();
  what_ = what;
  ticket_ = self.self.open(for_all);
  waiting_ = &self.self;
  listen(true);
  outcome how = outcome::value;
  if (end_has_come()) {
    self.self.claim(ticket_, outcome::value);
    lock_.unlock();
  } else {
    const wait_reason reason = for_all ? wait_reason::all_done : wait_reason::shutdown;
    try {
      how = wait(self, ticket_, reason, detail::until(deadline), for_all, lock_);
    } catch (const std::bad_alloc&) {
      how = outcome::cancelled;
    }
  }
  const lock_guard guard(lock_);
  waiting_ = nullptr;
  listen(false);
  return how;
}

void run_end::wait_until_all_done(fiber& self) noexcept {
  while (!state_.stopping() && !all_done())
    wait_for_end(self, end_wait::all_done, never);
}

// Without room for the deadline it is as if it had come.
void run_end::wait_out_grace(fiber& self) noexcept {
  while (!state_.stopping() && others_left() && grace_left() > 0) {
    if (wait_for_end(self, end_wait::grace, never) == outcome::cancelled) return;
  }
}

// Until the caller is the last user fiber and no function is left on a side pool.
outcome run_end::wait_for_others(fiber& self, nanos limit) noexcept {
  const nanos deadline = saturating_add(clock_.now(), limit);
  state_.set_gives_up_at(deadline);
  while (others_left()) {
    const outcome how = wait_for_end(self, end_wait::others, deadline);
    if (how == outcome::cancelled || (how == outcome::timeout && others_left())) return how;
  }
  return outcome::value;
}

// The same within the stop limit, which ends the program.
void run_end::outlive_others(fiber& self) noexcept {
  const nanos limit = stop_limit();
  outcome how = wait_for_others(self, limit);
  // No room for the deadline: the limit is given up, not the shutdown.
  if (how == outcome::cancelled) how = wait_for_others(self, never);
  if (how == outcome::timeout) stop_limit_passed(limit);
}

void run_end::wait_for_system_fibers(fiber& self) noexcept {
  while (fibers_.system() != 0)
    wait_for_end(self, end_wait::system, never);
}

void run_end::look_again() noexcept {
  waiter* w = nullptr;
  {
    const lock_guard guard(lock_);
    if (waiting_ == nullptr || !end_has_come()) return;
    if (waiting_->claim(ticket_, outcome::value)) w = waiting_;
    waiting_ = nullptr;
  }
  if (w != nullptr) w->deliver();
}

}  // namespace vigil::inline VIGIL_ABI::detail
