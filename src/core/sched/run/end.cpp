// How a run begins and ends.
//
//   RE0 exit_when::all_done: the main fiber's function has returned, and it waits until
//       all_done(), or for a stop; options::before_end may have it wait again
//   RE1 the main fiber's function has returned, or a stop was asked for
//       (signal, request_stop, deadlock; if request_stop came before the run,
//       this precedes the main fiber's function)              phase ending
//       then the root context is cancelled; meanwhile a fiber of ours counts
//       the grace and the stop limit (cancel_root)
//   RE2 the grace passes (longest_grace() of stopping.cpp), or every other user
//       fiber has ended, or a later signal of options::stop_on comes
//       (take_signals), or a fatal deadlock is found
//   RE3 then every open stoppable wait is claimed as stopped: a wait opened
//       before is found there, one opened later sees the phase
//       (both sequentially consistent)                        phase stopping
//   RE4 the main fiber, under a shield, waits until it is the last user fiber
//       and no function of a fiber runs on a side pool; after options::stop_limit
//       the program is aborted, with the names of those that are left; handlers
//       of io::executor() still start
//   RE5 only the main fiber can start fibers; captures of callbacks that never
//       started are destroyed there                           phase closed
//   RE6 the runner fibers and the timer fiber end; then the main fiber, and with
//       it the workers                                        phase over
//
// So run() never returns with a fiber alive.
#include "core/machine/process_state.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/run/run_end.hpp"
#include "core/sched/wait/timer_seam.hpp"
#include "core/sched/worker/outside_work.hpp"
#include "core/sched/worker/signal_hub.hpp"

#include <vigil/error.hpp>

#include <new>
#include <thread>

namespace VIGIL_DETAIL {

// The lock decides whether a request_stop() came before the run or finds it.
bool run_end::open_run() {
  bool is_first = false;
  bool stops = false;
  {
    const lock_guard guard(lock_);
    is_first = sched_.state.change_phase(run_phase::idle, run_phase::running);
    stops = sched_.signals.stop_is_noted();
    if (is_first) {
      stop_signal_.store(0);
      main_has_returned_ = false;
      unnamed_ = {};
    }
  }
  if (!is_first) throw wrong_place("vigil::runtime::run: this runtime is running already");
  return stops;
}

// Clears the traces of a run at its end, not at the beginning of the next one: a stop
// that is asked for as that one begins is kept.
void run_end::close_run(bool has_begun) noexcept {
  // A request_stop() that came late must not stop the next run. But if this run has not
  // begun, the stop is left to the next one.
  const lock_guard guard(lock_);
  stopper_ = {};
  stopper_started_ = false;
  root_watch_ = {};
  since_.store(0);
  main_runs_.store(main_runs::function);
  sched_.signals.forget(!has_begun);
  sched_.state.back_to_idle();
}

void run_end::set_main_fiber(fiber* main) noexcept {
  const lock_guard guard(lock_);
  main_fiber_ = main;
}

// Does after user code on the main fiber what fiber_entry() does at the end of the
// others: the main fiber itself ends after the timer fiber, too late for that.
void run_end::release_user_work(fiber& self) noexcept {
  self.destroy_locals();
  if (self.deferred != nullptr) sched_.timers().release_deferred(self);
}

void run_end::note_main_returned() noexcept {
  {
    const lock_guard guard(lock_);
    main_has_returned_ = true;
    unnamed_.is_given = false;
  }
  if (sched_.state.phase() != run_phase::running) look_at_grace_again();
}

void run_end::finish_run(fiber& self) noexcept {
  process_check_fork("the end of vigil::run");
  ++self.guards.shields;  // RE4: nothing ends the main fiber's waits from now on
  main_runs_.store(main_runs::end);
  note_begin();
  sched_.state.advance(run_phase::ending);  // RE1
  cancel_root();
  dismiss(stopper_);
  wait_out_grace(self);                     // RE2
  stop_all();                               // RE3
  wait_for_user_fibers(self);               // RE4
  sched_.state.advance(run_phase::closed);  // RE5
  for (;;) {
    main_runs_.store(main_runs::destructors);
    sched_.timers().discard_callbacks();
    // A capture's destructor may have deferred something, or started a fiber.
    release_user_work(self);
    main_runs_.store(main_runs::end);
    wait_for_user_fibers(self);
    if (!sched_.timers().anything_pending()) break;
    // A thread is in the middle of arming, stopping or firing a timer.
    std::this_thread::yield();
  }
  sched_.timers().end_fibers();  // RE6
  wait_for_system_fibers(self);
  set_main_fiber(nullptr);
}

// True if at one instant the main fiber is the only one, and there is neither outside
// work nor a referenced timer. They are looked at one after the other: a fiber, or
// outside work, that was there in between has changed the upper half of its word. Without
// fibers and outside work nothing else changes, neither pending I/O nor what timers hold
// (keepalive.hpp), unless a thread that has announced nothing changes it. A timer counts
// until its claim is taken, and the fiber that takes it is counted as alive before.
bool run_end::all_done() const noexcept {
  const std::uint64_t alive = sched_.fibers.history();
  const std::uint64_t announced = sched_.outside.history();
  if (fiber_registry::alive_in(alive) > 1 || outside_work::count_in(announced) != 0) return false;
  if (sched_.outside.has_io() || sched_.timers().holds_program()) return false;
  return sched_.fibers.history() == alive && sched_.outside.history() == announced;
}

bool run_end::others_left() const noexcept {
  return sched_.fibers.alive() > 1 || calls_.under_way() != 0 || root_cancels_.load() != 0;
}

namespace {

// Whether the fiber, one of ours or the main fiber, has parked or yielded in user code,
// for what a handler may bring. A lock is handed over by its holder, so the holder counts
// instead. A fiber that runs is left out: its worker looks again once it waits.
bool waits_in_user_code(const fiber& f) noexcept {
  // Pairs with the release in fiber::has_left(): `reason` is that of this wait.
  if (f.state.load(order::acquire) == fiber_state::running) return false;
  using enum wait_reason;
  // ordering: as above.
  const wait_reason why = f.present.reason.load(order::relaxed);
  const bool is_ours = why == timer_empty || why == timer_note || why == idle_runner ||
                       why == wait_reason::shutdown || why == all_done;
  return !is_ours && why != mutex && why != shared_mutex_write && why != shared_mutex_read;
}

}  // namespace

// A user fiber, a task, a function on a side pool, or one that the root context calls may
// wait for a handler. So may a handler itself, but one that only runs does not count, or
// handlers that post themselves would keep the run for ever.
//
// The answer becomes true by a fiber that is started, or that parks, and its worker looks
// for work afterwards. A runner counts as alive before it asks, and the main fiber says
// first what it runs and then looks at the count. All sequentially consistent, so either
// the runner starts nothing, or the main fiber waits for it.
bool run_end::handlers_are_awaited() noexcept {
  const main_runs main = main_runs_.load();
  if (main == main_runs::function || calls_.under_way() != 0 || root_cancels_.load() != 0)
    return true;
  bool has_tasks = false;
  sched_.parts_above.for_each([&](runtime_part& p) { has_tasks = has_tasks || p.has_tasks(); });
  if (has_tasks) return true;
  return sched_.fibers.any_of([main](const fiber& f) {
    if (f.role == fiber_role::user) return true;
    if (f.role == fiber_role::main && main == main_runs::end) return false;
    return waits_in_user_code(f);
  });
}

bool run_end::end_has_come() const noexcept {
  switch (awaited_) {
    case end_wait::all_done:
      return all_done();
    case end_wait::grace:
      return sched_.state.stopping() || !others_left();
    case end_wait::others:
      return !others_left();
    case end_wait::system:
      break;
  }
  return sched_.fibers.system() == 0;
}

// Caller: the main fiber, as in all below. Parks until `awaited` has come, or until the
// deadline (outcome::timeout); a stop ends only the wait for all_done. For the grace,
// the deadline is the end of the grace as it is now: the caller looks at it again
// afterwards. If there is no memory for the deadline, it does not wait and returns
// outcome::cancelled.
outcome run_end::wait_for_end(fiber& self, end_wait awaited, nanos deadline) noexcept {
  const bool for_all = awaited == end_wait::all_done;
  lock_.lock();
  if (awaited == end_wait::grace) deadline = grace_until();
  awaited_ = awaited;
  sched_.ending.listen(true);
  outcome result = outcome::value;
  if (end_has_come()) {
    lock_.unlock();
  } else {
    const wait_reason reason = for_all ? wait_reason::all_done : wait_reason::shutdown;
    // Not before: a thread that claims an open ticket readies the fiber, which must park.
    const ticket opened = self.own_waiter.open(for_all);
    main_waits_ = {&self.own_waiter, opened};
    lock_.unlock();
    try {
      result = wait(self, opened, reason, detail::until(deadline), for_all);
    } catch (const std::bad_alloc&) {
      result = outcome::cancelled;
    }
  }
  const lock_guard guard(lock_);
  main_waits_.whose = nullptr;
  sched_.ending.listen(false);
  return result;
}

void run_end::wait_until_all_done(fiber& self) noexcept {
  while (!sched_.state.stopping() && !all_done())
    wait_for_end(self, end_wait::all_done, never);
}

// If there is no memory for the deadline, the grace counts as over.
void run_end::wait_out_grace(fiber& self) noexcept {
  while (!sched_.state.stopping() && others_left() && grace_left() > 0) {
    if (wait_for_end(self, end_wait::grace, never) == outcome::cancelled) return;
  }
}

// Waits until the caller is the last user fiber and no function is left on a side pool.
outcome run_end::wait_for_others(fiber& self, nanos limit) noexcept {
  const nanos deadline = saturating_add(sched_.clock.now(), limit);
  while (others_left()) {
    const outcome result = wait_for_end(self, end_wait::others, deadline);
    if (result == outcome::cancelled || (result == outcome::timeout && others_left()))
      return result;
  }
  return outcome::value;
}

// Does the same within the stop limit. When the limit has passed, ends the program.
void run_end::wait_for_user_fibers(fiber& self) noexcept {
  const nanos limit = stop_limit();
  outcome result = wait_for_others(self, limit);
  // No memory for the deadline: the limit is given up, not the shutdown.
  if (result == outcome::cancelled) result = wait_for_others(self, never);
  if (result == outcome::timeout) stop_limit_passed(limit);
}

void run_end::wait_for_system_fibers(fiber& self) noexcept {
  while (sched_.fibers.system() != 0)
    wait_for_end(self, end_wait::system, never);
}

void run_end::look_again() noexcept {
  wake_list claimed;
  {
    const lock_guard guard(lock_);
    if (main_waits_.whose != nullptr && end_has_come()) claimed.end(main_waits_);
  }
  claimed.deliver();
}

}  // namespace VIGIL_DETAIL
