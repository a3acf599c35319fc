// scheduler: one runtime's workers, its fibers, and its end.
#pragma once

#include "base/atomic.hpp"
#include "base/clock_source.hpp"
#include "base/spinlock.hpp"
#include "sched/deadlock.hpp"
#include "sched/end_listener.hpp"
#include "sched/fiber.hpp"
#include "sched/fiber_registry.hpp"
#include "sched/idle.hpp"
#include "sched/outside_work.hpp"
#include "sched/scheduler_options.hpp"
#include "sched/short_turns.hpp"
#include "sched/side_call.hpp"
#include "sched/signal_hub.hpp"
#include "sched/stop_tree.hpp"
#include "sched/timer_seam.hpp"
#include "sched/visitors.hpp"
#include "sched/watch_slot.hpp"
#include "sched/worker.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/fwd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace vigil::internal {

// How far the end has come.
enum class run_phase : std::uint8_t {
  idle,  // not running
  running,
  ending,    // a stop was asked for; the grace period
  stopping,  // waits throw `stopped`
  closed,    // no user fiber is left
};

class dump_writer;
class side_pool;  // of the blocking layer

class scheduler final : private end_listener {
 public:
  // The watch is the futex one if none is given.
  explicit scheduler(const scheduler_options& settings, std::unique_ptr<watch> w = nullptr);
  ~scheduler();
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  // The timer service joins; before run().
  void attach(timer_seam& seam) noexcept { timers_ = &seam; }

  // Runs `body` as the main fiber until it has returned and every fiber has
  // ended. Rethrows what left it; deadlock and cancelled as run() promises.
  void run(detail::call_ref body, bool wants_result);

  // --- fibers
  // Throws as new_fiber promises.
  fiber& make_fiber(std::size_t stack_size,
                    std::string_view name,
                    std::size_t body_size,
                    std::size_t body_align,
                    const site& from,
                    fiber_role role);
  void start(fiber& f) noexcept;    // registers it and makes it ready
  void adopt(fiber& f) noexcept;    // registers it only (system fibers)
  void abandon(fiber& f) noexcept;  // made, never started
  void retire(fiber& f) noexcept;   // adopted, never entered
  // The last owner lets go; also after the runtime has gone.
  static void dispose(fiber& f) noexcept;
  // Several that were parked: all become findable, then one worker is woken.
  void ready_all(fiber_chain& fibers) noexcept;
  // These two also after the runtime has gone.
  static void drop_outcome(fiber& f) noexcept;
  // Throws what options::on_unhandled throws.
  VIGIL_FOR_IO static void report_unhandled(fiber& f, std::exception_ptr error);
  // For the bottom of a stack: what on_unhandled throws ends the program.
  static void report_finally(fiber& f, std::exception_ptr error) noexcept;

  // Makes f run: the scheduler's half of ready(). Also from threads that nothing
  // else keeps out of the runtime's end: once f is in a queue, it may end the
  // run while they are still here.
  void make_runnable(fiber& f, turn when = turn::next) noexcept;
  // Fired sleepers and fibers from outside: all at once.
  void inject(fiber_chain& fibers) noexcept VIGIL_EXCLUDES(injection_lock_);
  // Somebody may have to be woken for work that is findable now.
  void work_added(unsigned pieces = 1) noexcept;
  void work_added_here(worker& w) noexcept;  // in the calling worker's own queue

  // --- timers
  timer_seam& timers() noexcept { return *timers_; }

  // Never later than the earliest deadline that is pending; written by the
  // timer layer, read by workers. seq_cst: half of the protocol in idle.hpp.
  alignas(cache_line) atomic<nanos> next_deadline{never};
  // When a busy worker looks for I/O next; never, if the watch knows none. Written
  // by workers, a hint: two may look at once, and each turn counter looks as well.
  atomic<nanos> next_poll{never};
  // Due callbacks that wait for a runner; written by the timer layer. seq_cst: A1
  // of idle.hpp.
  atomic<std::size_t> callbacks_waiting{0};
  // The timer fiber, while it is parked: whoever exchanges it runs it.
  atomic<fiber*> parked_timer_fiber{nullptr};
  // A2, A3 of idle.hpp after next_deadline has been lowered. `parking`: the
  // calling fiber parks right after, so its worker will look.
  void deadline_lowered(nanos deadline, bool parking) noexcept;
  // What a `parking` one left to be done, if user code is to run after all.
  void cover_owed() noexcept;
  // Before user code: the next deadline, and the watch if there is I/O, are seen
  // to by somebody if anybody sleeps.
  void cover() noexcept;

  // A worker naps (worker::nap) after so many wake-ups in vain, at most so often
  // in a row; tests change it.
  atomic<unsigned> naps_after{4};
  atomic<unsigned> naps_in_a_row{20};

  short_turns first_turns;  // of the fibers' kinds; any worker

  // --- contexts
  // The present run's root context, made when the first fiber asks for it by the
  // layer of contexts; held until the run's end.
  atomic<stop_node*> root{nullptr};

  // --- where idle workers wait
  watch& present_watch() const noexcept { return watches_.present(); }

  // Changes the watch, once in the scheduler's life, while workers run and sleep:
  // false if one was given to the constructor or came first.
  VIGIL_FOR_IO bool adopt_watch(std::unique_ptr<watch> w) noexcept;

  internal::side_pool* side_pool = nullptr;  // the runtime's own; of the blocking layer

  // --- the end
  void request_stop() noexcept;  // any thread; outside run() it is kept for the next one

  bool stopping() const noexcept { return stopping_.load(); }

  run_phase phase() const noexcept { return phase_.load(); }

  bool must_stop(const fiber& f) const noexcept { return stopping() || f.stop_flag.load(); }

  // One that the shutdown caused, a joined child's for example.
  bool is_by_my_end(const cancelled& e) const noexcept;

  // Whether f, which it leaves, ends by it as silently as by `stopped`.
  bool ends_silently(const fiber& f, const cancelled& e) const noexcept {
    return is_by_my_end(e) || must_stop(f);
  }

  bool ends_silently(const deadlock&) const noexcept { return deadlocks.has_found(); }

  // exit_when::all_done: the main fiber waits until all_done().
  bool waits_for_all() const noexcept { return settings_.exit == exit_when::all_done; }

  // --- stuck_watch; any thread but where it says otherwise
  // Looks at each worker's count of switches, for the bounds of its present run,
  // and returns their sum.
  std::uint64_t look_at_runs(nanos now) noexcept;
  // Whether a fiber or a callback is ready, or a timer due, that no worker has
  // taken yet. Not on virtual time.
  bool somebody_waits() noexcept;
  // For how long f has run, if it runs and nobody else looks at this moment.
  // Async-signal-safe.
  bool has_run_for(const fiber& f, run_bounds::span& out) const noexcept;

  // --- virtual time
  bool is_virtual() const noexcept { return settings_.virtual_time; }

  clock_source clock;

  random& dice() noexcept { return dice_; }

  // Parks until nothing else can run at this instant.
  void settle();

  // --- the grace
  // Who needs time for the end of the run, a server that answers what it has: the
  // grace is as long as the longest that is announced at the time, and at least
  // options::grace. Exported for vigil-io, and for nobody else.
  struct grace_request {
    nanos length = 0;
    list_hook<grace_request> hook;
  };

  VIGIL_FOR_IO void announce_grace(grace_request& r) noexcept VIGIL_EXCLUDES(end_lock_);
  VIGIL_FOR_IO void withdraw_grace(grace_request& r) noexcept VIGIL_EXCLUDES(end_lock_);

  // What keeps exit_when::all_done from ending the run, by kind.
  void list_holders(dump_writer& out) noexcept;

 private:
  // Before the parts that are given some of them.
  const scheduler_options settings_;
  const std::uint64_t number_;
  watch_slot watches_;
  idle_workers idle_;
  worker_list workers_;
  visitors visitors_;

 public:
  // --- the parts
  deadlock_finder deadlocks{idle_, workers_, clock, next_deadline};
  fiber_registry fibers{settings_, *this};
  outside_work outside{idle_, deadlocks, *this, visitors_};
  side_calls calls{clock, idle_, outside, *this, visitors_};  // functions on side pools
  signal_hub signals{watches_, workers_, deadlocks, visitors_};

  list_hook<scheduler> among_all;  // of deadlock.cpp, guarded there

  const scheduler_options& settings() const noexcept { return settings_; }

  idle_workers& idle() noexcept { return idle_; }

  worker_list& workers() noexcept { return workers_; }

  const worker_list& workers() const noexcept { return workers_; }

  void add_stats(runtime_stats& s) const noexcept;  // async-signal-safe

  unsigned idle_count() const noexcept { return idle_.asleep() + (idle_.somebody_naps() ? 1 : 0); }

  std::uint64_t number() const noexcept { return number_; }

 private:
  friend class worker;

  worker* own_worker() noexcept;
  stack take_stack(std::size_t size, fiber_role role, worker* here);
  bool begin_run() VIGIL_EXCLUDES(end_lock_);
  void start_workers();
  void note_end() noexcept;
  nanos longest_grace() const noexcept VIGIL_REQUIRES(end_lock_);
  nanos grace_until() const noexcept VIGIL_REQUIRES(end_lock_);
  nanos grace_left() noexcept VIGIL_EXCLUDES(end_lock_);
  void look_at_grace_again() noexcept VIGIL_EXCLUDES(end_lock_);
  void end_grace() noexcept;
  void advance(run_phase to) noexcept;
  void begin_end() noexcept;
  void cancel_root() noexcept;
  void main_body(fiber& self, detail::call_ref body) noexcept;
  void end_run(fiber& self) noexcept;
  void release_user_work(fiber& self) noexcept;
  void wait_out_grace(fiber& self) noexcept;
  outcome wait_for_others(fiber& self, nanos limit) noexcept;
  void outlive_others(fiber& self) noexcept;
  void stop_all() noexcept;
  void wait_until_all_done(fiber& self) noexcept;
  bool all_done() const noexcept;
  void wait_for_system_fibers(fiber& self) noexcept;
  void look_again() noexcept override;  // end_listener: of the main fiber
  void stop_limit_passed(nanos waited) noexcept;
  void finish(fiber& f) noexcept;  // on its own stack
  void ended(fiber& f) noexcept;   // off its stack
  fiber* pop_injected() noexcept VIGIL_EXCLUDES(injection_lock_);
  fiber* take_timer_fiber() noexcept;
  fiber* nothing_to_run(worker& w) noexcept;  // virtual time

  // A signal of stop_on is what is waited for: by the main fiber, which sleeps or
  // selects from nothing, or by whoever waits for the root context's end.
  // The main fiber's block may go at any moment, if a thread from outside has woken
  // it meanwhile: under the lock it is there (ended()).
  bool waits_for_stop_signal() noexcept VIGIL_EXCLUDES(end_lock_) {
    if (settings_.stop_on.empty()) return false;
    {
      const lock_guard guard(end_lock_);
      if (main_fiber_ == nullptr) return false;
      const wait_reason why = main_fiber_->reason.load();
      if (why == wait_reason::sleep || why == wait_reason::select_none) return true;
    }
    stop_node* const top = root.load();
    return top != nullptr && top->is_waited_for();
  }

  bool finds_work(std::size_t callbacks_taken = 0) noexcept;
  bool finds_common_work(std::size_t callbacks_taken) noexcept;
  bool finds_much_work() noexcept;
  void sleep_alone(worker& w, bool for_outside_work) noexcept;  // virtual time
  void sleep_for_calls(worker& w) noexcept;

  // For what the main fiber waits; in the grace, for the others or a stop of all.
  enum class end_wait : std::uint8_t { all_done, grace, others, system };
  outcome wait_for_end(fiber& self, end_wait what, nanos deadline) noexcept
      VIGIL_EXCLUDES(end_lock_);
  bool end_has_come() const noexcept VIGIL_REQUIRES(end_lock_);

  bool others_left() const noexcept {
    return fibers.alive() > 1 || calls.under_way() != 0 || root_cancels_.load() != 0;
  }

  // For the length of a run: deadlock.cpp.
  void join_all() noexcept;
  void leave_all() noexcept;
  // Caller: a worker that has lain down, the last one.
  void look_for_deadlock() noexcept;
  bool looks_stuck(std::uint64_t asleep) noexcept;
  static void look_at_all() noexcept;
  static void report_deadlock(bool alone) noexcept;
  bool deadlock_is_fatal(bool alone) const noexcept;
  void end_deadlocked() noexcept;

  // A run that ends by a deadlock, when what the stop of all has woken rests again.
  // `asleep` is what all_asleep() said.
  bool can_only_give_up(std::uint64_t asleep) noexcept;
  // Then, by a worker that is not counted as asleep: others would look meanwhile.
  // True if there were some, which are readied.
  bool end_lock_waits() noexcept;

  // A fiber of ours that waits for a time, unless it is dismissed.
  struct timekeeper {
    waiter* who = nullptr;
    ticket which = 0;
    bool in_grace = false;  // it waits for the end of that
    bool dismissed = false;
  };

  enum class kept : std::uint8_t { dismissed, over, woken };  // how its time has passed

  void start_stopper() noexcept;
  void stopper_body(fiber& self) noexcept;
  void watch_root(fiber& self) noexcept;
  void start_timekeeper(const char* name, void (scheduler::*duty)(fiber&) noexcept);
  kept wait_as(timekeeper& which, fiber& self, std::optional<nanos> length) noexcept;
  bool wait_out_grace_as(timekeeper& which, fiber& self) noexcept;
  void let_off(timekeeper& which) noexcept;

  nanos stop_limit() const noexcept { return std::max<nanos>(settings_.stop_limit.count(), 0); }

  void take_signals() noexcept;
  static void fiber_entry(void* self);
  static void run_open(fiber& self);
  static void run_kept(fiber& self) noexcept;

  timer_seam* timers_ = nullptr;
  random dice_;

  spinlock injection_lock_{lock_rank::injection};
  fiber_chain injected_ VIGIL_GUARDED_BY(injection_lock_);
  alignas(cache_line) atomic<std::size_t> injected_count_{0};

  nanos calls_given_up_at_ = 0;  // virtual time, while the run ends; 0: not yet set
  atomic<run_phase> phase_{run_phase::idle};
  atomic<bool> stopping_{false};
  atomic<bool> quit_{false};
  std::uint64_t seen_asleep_ = 0;   // guarded by deadlock.cpp's lock
  atomic<bool> all_stopped_{false};  // stop_all() has been through
  atomic<nanos> gives_up_at_{0};     // the shutdown (stop_limit); 0: nobody counts yet

  spinlock end_lock_{lock_rank::shutdown};
  // From its start to its end, before its block goes.
  fiber* main_fiber_ VIGIL_GUARDED_BY(end_lock_) = nullptr;

  // The main fiber while it waits for the others to end.
  waiter* end_waiter_ VIGIL_GUARDED_BY(end_lock_) = nullptr;
  ticket end_ticket_ VIGIL_GUARDED_BY(end_lock_) = 0;
  end_wait end_what_ VIGIL_GUARDED_BY(end_lock_) = end_wait::others;

  // These are guarded by end_lock_: one for the grace period and the stop limit until
  // the main fiber sees to them itself, one while the root context is cancelled.
  timekeeper stopper_;
  timekeeper root_watch_;
  bool stopper_started_ VIGIL_GUARDED_BY(end_lock_) = false;
  atomic<fiber*> stopper_fiber_{nullptr};  // while it cancels the root context
  atomic<unsigned> root_cancels_{0};       // under way
  atomic<nanos> end_since_{0};             // 0: the end has not begun
  list<grace_request, &grace_request::hook> graces_ VIGIL_GUARDED_BY(end_lock_);

  // settle(): one fiber at a time, virtual time only, so one thread.
  waiter* settler_ = nullptr;
  ticket settler_ticket_ = 0;

  futex_word gate_{0};                // workers start when all threads exist: 1 run, 2 give up
  bool main_stopped_ = false;
  std::exception_ptr main_error_;
};

// The scheduler whose worker the calling thread is; nullptr elsewhere. To act in
// another one, say which: user code that runs meanwhile finds its own.
VIGIL_FOR_IO scheduler* current_scheduler() noexcept;

// The calling fiber; throws wrong_place with the name of the call elsewhere.
VIGIL_FOR_IO fiber& require_fiber(const char* call);

}  // namespace vigil::internal
