// run_end: the end of a run: how it is asked for, which fibers it stops, and for
// what it waits. Its steps are E0 to E6 of end.cpp; the way in, and the fibers
// that count the time, are in stopping.cpp.
//
// One lock guards the waits. The main fiber, the stopper and the root watch look
// at what they wait for, and open their wait, under it; a thread that changes that
// changes it first, and looks for them under the lock afterwards.
#pragma once

#include "base/atomic.hpp"
#include "base/clock_source.hpp"
#include "base/intrusive_list.hpp"
#include "base/spinlock.hpp"
#include "sched/fiber/end_listener.hpp"
#include "sched/fiber/fiber_registry.hpp"
#include "sched/run/run_state.hpp"
#include "sched/run/side_call.hpp"
#include "sched/wait/cancel_tree.hpp"
#include "sched/wait/waiter.hpp"

#include <vigil/detail/config.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace vigil::inline VIGIL_ABI::detail {

class outside_work;
class signal_hub;
class timer_seam;
class visitors;

// Starts fibers of the library's own.
class system_fibers {
 public:
  using duty = void (*)(void* argument, fiber& self) noexcept;

  // Counted as one of ours, and ready. Throws as make_fiber does.
  virtual void start_system_fiber(const char* name, duty of, void* argument) = 0;

 protected:
  ~system_fibers() = default;
};

// Time that is needed at the end of the run, by a server that answers what it has:
// the grace is as long as the longest that is announced at the time, and at least
// options::grace.
struct grace_request {
  nanos length = 0;
  list_hook<grace_request> hook;
};

class run_end final : public end_listener {
 public:
  struct parts {
    const scheduler_options& settings;
    const clock_source& clock;
    run_state& state;
    fiber_registry& fibers;
    outside_work& outside;
    side_calls& calls;
    signal_hub& signals;
    visitors& inside;
    timer_seam* const& timers;  // attached before the first run
    system_fibers& starter;
  };

  explicit run_end(const parts& with) noexcept;

  // --- any thread
  void request_stop() noexcept;  // outside run() it is kept for the next one

  // Exported for vigil-io, and for nobody else.
  VIGIL_FOR_IO void announce_grace(grace_request& r) noexcept VIGIL_EXCLUDES(lock_);
  VIGIL_FOR_IO void withdraw_grace(grace_request& r) noexcept VIGIL_EXCLUDES(lock_);

  // exit_when::all_done: the main fiber waits until all_done().
  bool waits_for_all() const noexcept { return settings_.exit == exit_when::all_done; }

  bool all_done() const noexcept;

  // A signal of stop_on is what is waited for: by the main fiber, which sleeps or
  // selects from nothing, or by a fiber that waits for the root context's end.
  bool waits_for_stop_signal() noexcept VIGIL_EXCLUDES(lock_);

  // --- workers, on their own stacks
  void take_signals() noexcept;
  void begin() noexcept;
  // A fatal deadlock is found.
  void begin_by_deadlock() noexcept;
  // Names whoever keeps the shutdown from ending, and ends the program.
  void stop_limit_passed(nanos waited) noexcept;

  nanos stop_limit() const noexcept { return std::max<nanos>(settings_.stop_limit.count(), 0); }

  // --- run(), one after the other
  // Throws wrong_place if there is a run already. True: a stop was asked for before.
  bool open_run() VIGIL_EXCLUDES(lock_);
  // `has_begun`: it was more than an attempt, which leaves a kept stop to the next.
  void close_run(bool has_begun) noexcept VIGIL_EXCLUDES(lock_);
  // From its start to its end, before its block goes: then null.
  void set_main_fiber(fiber* main) noexcept VIGIL_EXCLUDES(lock_);

  // --- the main fiber, after its function
  void release_user_work(fiber& self) noexcept;
  void wait_until_all_done(fiber& self) noexcept;  // E0
  void finish_run(fiber& self) noexcept;           // E1 to E6

  // The present run's root context, made when the first fiber asks for it by the
  // layer of contexts; held until the run's end.
  atomic<cancel_node*> root{nullptr};

 private:
  // For what the main fiber waits; in the grace, for the others or a stop of all.
  enum class end_wait : std::uint8_t { all_done, grace, others, system };

  // A fiber of ours that waits for a time, unless it is dismissed.
  struct timekeeper {
    waiter* who = nullptr;
    ticket which = 0;
    bool in_grace = false;  // it waits for the end of that
    bool dismissed = false;
  };

  enum class kept : std::uint8_t { dismissed, over, woken };  // how its time has passed

  void note_begin() noexcept;
  void look_again() noexcept override VIGIL_EXCLUDES(lock_);  // for the main fiber

  // --- the main fiber
  bool end_has_come() const noexcept VIGIL_REQUIRES(lock_);
  bool others_left() const noexcept;
  outcome wait_for_end(fiber& self, end_wait what, nanos deadline) noexcept VIGIL_EXCLUDES(lock_);
  void wait_out_grace(fiber& self) noexcept;
  outcome wait_for_others(fiber& self, nanos limit) noexcept;
  void outlive_others(fiber& self) noexcept;
  void wait_for_system_fibers(fiber& self) noexcept;

  // --- stopping
  void stop_all() noexcept;
  void cancel_root() noexcept;
  void start_stopper() noexcept;
  void stopper_body(fiber& self) noexcept;
  void watch_root(fiber& self) noexcept;
  kept wait_as(timekeeper& which, fiber& self, std::optional<nanos> length) noexcept;
  bool wait_out_grace_as(timekeeper& which, fiber& self) noexcept;
  void let_off(timekeeper& which) noexcept;

  // --- the grace
  nanos longest_grace() const noexcept VIGIL_REQUIRES(lock_);
  nanos grace_until() const noexcept VIGIL_REQUIRES(lock_);
  nanos grace_left() noexcept VIGIL_EXCLUDES(lock_);
  void look_at_grace_again() noexcept VIGIL_EXCLUDES(lock_);
  void end_grace() noexcept;

  const scheduler_options& settings_;
  const clock_source& clock_;
  run_state& state_;
  fiber_registry& fibers_;
  outside_work& outside_;
  side_calls& calls_;
  signal_hub& signals_;
  visitors& visitors_;
  timer_seam* const& timers_;
  system_fibers& starter_;

  spinlock lock_{lock_rank::shutdown};
  fiber* main_fiber_ VIGIL_GUARDED_BY(lock_) = nullptr;
  // The main fiber while it waits for the others to end.
  waiter* waiting_ VIGIL_GUARDED_BY(lock_) = nullptr;
  ticket ticket_ VIGIL_GUARDED_BY(lock_) = 0;
  end_wait what_ VIGIL_GUARDED_BY(lock_) = end_wait::others;

  // These are guarded by lock_: one for the grace period and the stop limit until
  // the main fiber sees to them itself, one while the root context is cancelled.
  timekeeper stopper_;
  timekeeper root_watch_;
  bool stopper_started_ VIGIL_GUARDED_BY(lock_) = false;
  atomic<fiber*> stopper_fiber_{nullptr};  // while it cancels the root context
  atomic<unsigned> root_cancels_{0};       // under way
  atomic<nanos> since_{0};                 // 0: the end has not begun
  list<grace_request, &grace_request::hook> graces_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace vigil::inline VIGIL_ABI::detail
