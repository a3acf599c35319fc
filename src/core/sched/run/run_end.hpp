// run_end: the end of a run: how it is asked for, which fibers it stops, and what it
// waits for. Its steps are RE0 to RE6 of end.cpp; the ways to ask for it, and the fibers
// that count the time, are in stopping.cpp.
//
// One lock guards the waits. The main fiber, the stopper and the root watch check
// under it whether they must wait, and open their wait. A thread that changes what one
// of them waits for makes the change first, and looks for the wait under the lock
// afterwards.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/run/side_call.hpp"
#include "core/sched/wait/cancel_tree.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/detail/config.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace VIGIL_DETAIL {

// The time that a server needs at the end of the run to answer the requests that it has.
// The grace is as long as the longest request announced at the time, and at least
// options::grace, if that is given.
struct grace_request {
  nanos length = 0;
  list_hook<grace_request> hook;
};

class run_end {
 public:
  run_end(scheduler& of, side_calls& calls) noexcept : sched_(of), calls_(calls) {}

  // --- any thread
  void request_stop() noexcept;  // outside run() it is kept for the next run

  // Exported for vigil-io alone.
  VIGIL_FOR_IO void announce_grace(grace_request& r) noexcept VIGIL_EXCLUDES(lock_);
  VIGIL_FOR_IO void withdraw_grace(grace_request& r) noexcept VIGIL_EXCLUDES(lock_);

  // Whether the main fiber waits until all_done() (exit_when::all_done).
  bool waits_for_all() const noexcept { return sched_.settings().exit == exit_when::all_done; }

  bool all_done() const noexcept;

  // Readies the main fiber if what it waits for has come (end_listener).
  void look_again() noexcept VIGIL_EXCLUDES(lock_);

  // Whether a signal of stop_on is waited for: by the main fiber, which sleeps or selects
  // from nothing, or by a fiber that waits for the root context's end.
  bool waits_for_stop_signal() noexcept VIGIL_EXCLUDES(lock_);

  // Whether handlers of io::executor() may still start although the run stops: user code
  // is there that may wait for one (RE4).
  bool handlers_are_awaited() noexcept;

  // The first signal of stop_on that came in the run, or in the last one; 0: none.
  int stop_signal() const noexcept { return stop_signal_.load(); }

  // --- workers, on their own stacks
  void take_signals() noexcept;
  void begin(int signal = 0) noexcept;  // of stop_on; 0: none
  // Called when a fatal deadlock is found.
  void begin_by_deadlock() noexcept;
  // Names the fibers and calls that keep the shutdown from ending, and ends the program.
  void stop_limit_passed(nanos waited) noexcept;

  nanos stop_limit() const noexcept {
    return std::max<nanos>(sched_.settings().stop_limit.count(), 0);
  }

  // --- run(), in this order
  // Throws wrong_place if there is a run already. True if a stop was asked for before.
  bool open_run() VIGIL_EXCLUDES(lock_);
  // `has_begun`: whether the run was more than an attempt. An attempt leaves a stop that
  // was asked for to the next run.
  void close_run(bool has_begun) noexcept VIGIL_EXCLUDES(lock_);
  // Called when the main fiber starts, and with null before it ends.
  void set_main_fiber(fiber* main) noexcept VIGIL_EXCLUDES(lock_);

  // --- the main fiber, after its function
  void release_user_work(fiber& self) noexcept;
  // The grace that was not named is over.
  void note_main_returned() noexcept VIGIL_EXCLUDES(lock_);
  void wait_until_all_done(fiber& self) noexcept;  // RE0
  void finish_run(fiber& self) noexcept;           // RE1 to RE6

  // The root context of the present run. The layer of contexts makes it when the first
  // fiber asks for it; it is held until the run's end.
  atomic<cancel_node*> root{nullptr};

 private:
  // The end that the main fiber waits for; `grace` ends early if the others end, or all
  // are stopped.
  enum class end_wait : std::uint8_t { all_done, grace, others, system };

  // A fiber of ours that waits until a time has passed, or until it is dismissed.
  struct deadline_fiber {
    open_wait waits;
    bool in_grace = false;  // it waits for the end of the grace
    bool dismissed = false;
  };

  enum class kept : std::uint8_t { dismissed, over, woken };  // why such a fiber goes on

  // The code that the main fiber runs: its function, the end of the run, or, in that,
  // destructors of captures.
  enum class main_runs : std::uint8_t { function, destructors, end };

  // The grace that main's function has after a signal if options::grace is not given.
  struct unnamed_grace {
    bool is_given = false;  // a signal began the end, and main has not returned
    bool is_told = false;   // the line on standard error has been written
    nanos tell_at = never;  // when that is due
  };

  void note_begin(int signal = 0) noexcept VIGIL_EXCLUDES(lock_);

  // --- the main fiber
  bool end_has_come() const noexcept VIGIL_REQUIRES(lock_);
  bool others_left() const noexcept;
  outcome wait_for_end(fiber& self, end_wait awaited, nanos deadline) noexcept
      VIGIL_EXCLUDES(lock_);
  void wait_out_grace(fiber& self) noexcept;
  outcome wait_for_others(fiber& self, nanos limit) noexcept;
  void wait_for_user_fibers(fiber& self) noexcept;
  void wait_for_system_fibers(fiber& self) noexcept;

  // --- stopping
  void stop_all() noexcept;
  void cancel_root() noexcept;
  void start_stopper() noexcept;
  void stopper_body() noexcept;
  void watch_root() noexcept;
  kept wait_as(deadline_fiber& role, fiber& self, std::optional<nanos> length) noexcept;
  bool wait_out_grace_as(deadline_fiber& role, fiber& self) noexcept;
  void dismiss(deadline_fiber& role) noexcept;

  // --- the grace
  bool unnamed_grace_counts() const noexcept VIGIL_REQUIRES(lock_);
  nanos longest_grace() const noexcept VIGIL_REQUIRES(lock_);
  nanos grace_until() const noexcept VIGIL_REQUIRES(lock_);
  nanos grace_left() noexcept VIGIL_EXCLUDES(lock_);
  void tell_of_main() noexcept VIGIL_EXCLUDES(lock_);
  void look_at_grace_again() noexcept VIGIL_EXCLUDES(lock_);
  void end_grace() noexcept;

  scheduler& sched_;
  side_calls& calls_;

  spinlock lock_{lock_rank::shutdown};
  fiber* main_fiber_ VIGIL_GUARDED_BY(lock_) = nullptr;
  open_wait main_waits_ VIGIL_GUARDED_BY(lock_);  // for the others to end
  end_wait awaited_ VIGIL_GUARDED_BY(lock_) = end_wait::others;

  // Guarded by lock_. The stopper counts the grace period and the stop limit until the
  // main fiber sees to them itself; the root watch counts while the root context is
  // cancelled.
  deadline_fiber stopper_;
  deadline_fiber root_watch_;
  bool stopper_started_ VIGIL_GUARDED_BY(lock_) = false;
  atomic<main_runs> main_runs_{main_runs::function};
  atomic<fiber*> stopper_fiber_{nullptr};  // while it cancels the root context
  atomic<unsigned> root_cancels_{0};       // under way
  atomic<nanos> since_{0};                 // 0: the end has not begun
  atomic<int> stop_signal_{0};
  bool main_has_returned_ VIGIL_GUARDED_BY(lock_) = false;
  unnamed_grace unnamed_ VIGIL_GUARDED_BY(lock_);
  list<grace_request, &grace_request::hook> graces_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace VIGIL_DETAIL
