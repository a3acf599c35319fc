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
#include "sched/park.hpp"
#include "sched/process.hpp"
#include "sched/scheduler.hpp"
#include "sched/slow_fiber.hpp"
#include "sched/stuck_watch.hpp"

#include <vigil/error.hpp>

#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

namespace vigil::internal {
namespace {

struct main_frame {
  scheduler* sched;
  detail::call_ref body;
  void (scheduler::*run)(fiber&, detail::call_ref) noexcept;
};

}  // namespace

void scheduler::run(detail::call_ref body, bool wants_result) {
  if (current_fiber() != nullptr) {
    throw wrong_place(
        "vigil::run inside a fiber: use go or spawn; a second runtime needs a thread "
        "of its own");
  }
  const bool is_stopped = begin_run();

  // The traces of a run go at its end, so that a stop that is asked for as the
  // next one begins is not wiped out.
  struct back_to_idle {
    scheduler& s;
    bool has_begun = false;

    ~back_to_idle() {
      s.stopping_.store(false);
      s.quit_.store(false);
      s.deadlocks.forget_warned();
      s.all_stopped_.store(false);
      s.gives_up_at_.store(0);
      // A request_stop() that came late must not stop the next run; but one that
      // would have stopped this one, had it begun, is still to do.
      const lock_guard guard(s.end_lock_);
      s.stopper_ = {};
      s.stopper_started_ = false;
      s.root_watch_ = {};
      s.end_since_.store(0);
      s.signals.forget(!has_begun);
      s.calls_given_up_at_ = 0;
      s.phase_.store(run_phase::idle);
    }
  } idle_again{*this};

  deadlocks.forget_found();
  main_stopped_ = false;
  main_error_ = nullptr;

  struct one_of_all {
    scheduler& s;

    explicit one_of_all(scheduler& of) noexcept : s(of) {
      process_count_own_threads(1);
      s.join_all();
    }

    // The root context last: another runtime that looks for a deadlock reads it.
    ~one_of_all() {
      s.leave_all();
      if (stop_node* const node = s.root.exchange(nullptr)) node->let_go();
      process_count_own_threads(-1);
    }
  } const running{*this};

  struct slow_guard {
    scheduler& s;
    std::unique_ptr<slow_fibers> slow;

    ~slow_guard() {
      for (const auto& w : s.workers_)
        w->slow = nullptr;
    }
  } watched{*this, nullptr};

  if (settings_.slow_fiber.count() > 0) {
    watched.slow = std::make_unique<slow_fibers>(settings_.slow_fiber.count(), workers_.size());
    for (const auto& w : workers_)
      w->slow = watched.slow.get();
  }

  struct stuck_guard {
    scheduler& s;
    std::optional<stuck_watch> stuck;

    ~stuck_guard() {
      for (const auto& w : s.workers_)
        w->stuck = nullptr;
    }
  } looked_after{*this, {}};

  const nanos now = monotonic_now();
  for (const auto& w : workers_)
    w->ran.begin(w->counters.switches.get(), now);
  if (settings_.stuck_limit.count() > 0 && !is_virtual()) {
    looked_after.stuck.emplace(*this, settings_.stuck_limit.count());
    for (const auto& w : workers_)
      w->stuck = &*looked_after.stuck;
  }
  const process_guard process(*this);
  timers_->open();
  fiber* main = nullptr;
  try {
    main = &make_fiber(settings_.main_stack_size,
                       "main",
                       sizeof(main_frame),
                       alignof(main_frame),
                       site{"vigil::run", 0},
                       fiber_role::main);
  } catch (...) {
    timers_->abort_open();
    throw;
  }
  ::new (main->body) main_frame{this, body, &scheduler::main_body};
  static constexpr detail::body_table main_table = {
      [](void* frame) {
        auto& f = *static_cast<main_frame*>(frame);
        (f.sched->*f.run)(*current_fiber(), f.body);
      },
      [](void*) noexcept {},
      [](void*) noexcept {},
      [](void*) noexcept -> void* { return nullptr; }};
  main->table = &main_table;
  main->pinned = workers_[0].get();
  main->pins = 1;
  workers_[0]->keeps();
  if (looked_after.stuck) looked_after.stuck->somebody_is_awake();
  try {
    start_workers();
  } catch (...) {
    workers_[0]->lets_go(*main);
    abandon(*main);
    timers_->abort_open();
    throw;
  }
  idle_again.has_begun = true;
  // Before the main fiber is entered, whichever worker takes the bit.
  if (is_stopped) begin_end();
  {
    const lock_guard guard(end_lock_);
    main_fiber_ = main;
  }
  start(*main);
  {
    const thread_guard thread;
    workers_[0]->run();
  }
  for (auto& w : workers_) {
    if (w->thread_.joinable()) w->thread_.join();
  }
  signals.dismiss_watchers();
  if (main_error_ != nullptr) std::rethrow_exception(std::exchange(main_error_, nullptr));
  if (deadlocks.has_found()) {
    throw deadlock(
        "vigil: deadlock: every fiber was parked, no timer was pending and no outside "
        "work was announced; the dump has been written to standard error");
  }
  if (main_stopped_ && wants_result) {
    throw cancelled("vigil::run: the main function was stopped before it had a result");
  }
}

// True: a stop was asked for before. The lock decides whether a request_stop() is
// one of those or finds the run.
bool scheduler::begin_run() {
  auto expected = run_phase::idle;
  bool is_stopped = false;
  {
    const lock_guard guard(end_lock_);
    phase_.compare_exchange_strong(expected, run_phase::running);
    is_stopped = signals.stop_is_noted();
  }
  if (expected != run_phase::idle) {
    throw wrong_place("vigil::runtime::run: this runtime is running already");
  }
  return is_stopped;
}

void scheduler::start_workers() {
  constexpr std::uint32_t wait = 0;
  constexpr std::uint32_t go = 1;
  constexpr std::uint32_t give_up = 2;
  gate_.store(wait);
  const auto open_gate = [this](std::uint32_t how) {
    gate_.store(how);
    for (std::size_t i = 1; i < workers_.size(); ++i)
      words::wake_one(gate_);
  };
  // They look from now on: work of the main fiber's that comes before their threads do
  // is theirs.
  const auto count_looking = [this] {
    for (std::size_t i = 1; i < workers_.size(); ++i) {
      workers_[i]->looking_ = true;
      idle_.start_looking();
    }
  };
  try {
    for (std::size_t i = 1; i < workers_.size(); ++i) {
      worker* const w = workers_[i].get();
      w->thread_ = std::thread([this, w] {
        char name[16];
        std::snprintf(name, sizeof name, "vigil/%u", w->index);
        ::pthread_setname_np(::pthread_self(), name);
        while (gate_.load() == wait)
          words::wait(gate_, wait, never);
        if (gate_.load() == give_up) return;
        const thread_guard thread;
        w->run();
      });
    }
  } catch (const std::system_error& e) {
    open_gate(give_up);
    std::size_t started = 1;
    for (auto& w : workers_) {
      if (!w->thread_.joinable()) continue;
      ++started;
      w->thread_.join();
    }
    throw std::system_error(e.code(),
                            "vigil::run: worker thread " + std::to_string(started + 1) + " of " +
                                std::to_string(workers_.size()) +
                                " cannot be started; ask for fewer in options::workers, or raise "
                                "the limit on threads (ulimit -u, cgroup pids.max)");
  }
  count_looking();
  open_gate(go);
}

void scheduler::main_body(fiber& self, detail::call_ref body) noexcept {
  bool returned = false;
  try {
    body();
    returned = true;
  } catch (const stopped&) {
    main_stopped_ = true;
  } catch (const cancelled& e) {
    if (ends_silently(self, e)) {
      main_stopped_ = true;
    } else {
      main_error_ = std::current_exception();
    }
  } catch (const deadlock& e) {
    if (!ends_silently(e)) main_error_ = std::current_exception();  // else run() throws its own
  } catch (...) {
    main_error_ = std::current_exception();
  }
  release_user_work(self);
  if (returned && waits_for_all()) wait_until_all_done(self);  // E0
  end_run(self);
}

// After user code on the main fiber, which ends only when no timer runs any more.
void scheduler::release_user_work(fiber& self) noexcept {
  self.destroy_locals();
  if (self.deferred != nullptr) timers_->release_deferred(self);
}

void scheduler::end_run(fiber& self) noexcept {
  process_check_fork("the end of vigil::run");
  ++self.shields;  // E4: nothing ends the main fiber's waits from now on
  note_end();
  advance(run_phase::ending);  // E1
  cancel_root();
  let_off(stopper_);
  wait_out_grace(self);        // E2
  stop_all();                  // E3
  outlive_others(self);        // E4
  advance(run_phase::closed);  // E5
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
// nothing changes, neither pending I/O nor what timers hold (holds.cpp), and
// nothing can come but from threads that have announced nothing. A timer counts
// until its claim is taken, and who takes it is counted as alive before.
bool scheduler::all_done() const noexcept {
  const std::uint64_t alive = fibers.history();
  const std::uint64_t announced = outside.history();
  if (fiber_registry::alive_in(alive) > 1 || outside_work::count_in(announced) != 0) return false;
  if (outside.has_io() || timers_->holds_program()) return false;
  return fibers.history() == alive && outside.history() == announced;
}

bool scheduler::end_has_come() const noexcept {
  switch (end_what_) {
    case end_wait::all_done:
      return all_done();
    case end_wait::grace:
      return stopping() || !others_left();
    case end_wait::others:
      return !others_left();
    case end_wait::system:
      break;
  }
  return fibers.system() == 0;
}

// Caller: the main fiber, as in all below. Parks until the end of `what` has come,
// the deadline (outcome::timeout), or a stop, which ends a wait for all_done only. For
// the grace the deadline is what its end is now: look at it again afterwards.
// Without room for the deadline it does not wait: outcome::cancelled.
outcome scheduler::wait_for_end(fiber& self, end_wait what, nanos deadline) noexcept {
  const bool for_all = what == end_wait::all_done;
  end_lock_.lock();
  if (what == end_wait::grace) deadline = grace_until();
  end_what_ = what;
  end_ticket_ = self.self.open(for_all);
  end_waiter_ = &self.self;
  listen(true);
  outcome how = outcome::value;
  if (end_has_come()) {
    self.self.claim(end_ticket_, outcome::value);
    end_lock_.unlock();
  } else {
    const wait_reason reason = for_all ? wait_reason::all_done : wait_reason::shutdown;
    try {
      how = wait(self, end_ticket_, reason, detail::until(deadline), for_all, end_lock_);
    } catch (const std::bad_alloc&) {
      how = outcome::cancelled;
    }
  }
  const lock_guard guard(end_lock_);
  end_waiter_ = nullptr;
  listen(false);
  return how;
}

void scheduler::wait_until_all_done(fiber& self) noexcept {
  while (!stopping() && !all_done())
    wait_for_end(self, end_wait::all_done, never);
}

// Without room for the deadline it is as if it had come.
void scheduler::wait_out_grace(fiber& self) noexcept {
  while (!stopping() && others_left() && grace_left() > 0) {
    if (wait_for_end(self, end_wait::grace, never) == outcome::cancelled) return;
  }
}

// Until the caller is the last user fiber and no function is left on a side pool.
outcome scheduler::wait_for_others(fiber& self, nanos limit) noexcept {
  const nanos deadline = saturating_add(clock.now(), limit);
  gives_up_at_.store(deadline);
  while (others_left()) {
    const outcome how = wait_for_end(self, end_wait::others, deadline);
    if (how == outcome::cancelled || (how == outcome::timeout && others_left())) return how;
  }
  return outcome::value;
}

// The same within the stop limit, which ends the program.
void scheduler::outlive_others(fiber& self) noexcept {
  const nanos limit = stop_limit();
  outcome how = wait_for_others(self, limit);
  // No room for the deadline: the limit is given up, not the shutdown.
  if (how == outcome::cancelled) how = wait_for_others(self, never);
  if (how == outcome::timeout) stop_limit_passed(limit);
}

void scheduler::wait_for_system_fibers(fiber& self) noexcept {
  while (fibers.system() != 0)
    wait_for_end(self, end_wait::system, never);
}

void scheduler::look_again() noexcept {
  waiter* w = nullptr;
  {
    const lock_guard guard(end_lock_);
    if (end_waiter_ == nullptr || !end_has_come()) return;
    if (end_waiter_->claim(end_ticket_, outcome::value)) w = end_waiter_;
    end_waiter_ = nullptr;
  }
  if (w != nullptr) w->deliver();
}

}  // namespace vigil::internal
