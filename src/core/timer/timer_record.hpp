// timer_record: a runtime timer with a callback, as after_func and every make it.
//
// The captures live as long as they can be needed: while there is a handle, while the
// timer is pending, and while a run is under way. Handles and runs are counted in one
// word, `uses`; `when` says whether the timer is pending, so arming and stopping touch no
// count.
//
// TR1 The last handle or run to go looks at `when`. If the timer is pending, the run to
//     come is the last. If it is idle, only the one that succeeds in changing `uses` to
//     `callback_destroyed` destroys the captures, on its own thread: never the timer
//     fiber, which touches no count.
// TR2 A run adds itself to `uses` before it claims `when`, and gives up if the callback
//     has been destroyed. Ended runs are counted in the same word, so that a handle that
//     saw the timer pending does not miss the run that came since.
// TR3 With neither a handle nor a run under way, `when` can only be claimed, never armed.
//     A timer whose callback is halted claims and arms nothing: stop_waiters.hpp.
// TR4 A run still looks at the record after dropping its count, under the reference of
//     its queue entry; a handle has no reference of its own, and looks before.
//
// A dead entry holds only a reference to the record, not a use.
#pragma once

#include "core/timer/runtime_timer.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/timer.hpp>

namespace VIGIL_DETAIL {

class clock_callback;

class timer_record : public runtime_timer {
 public:
  timer_record(timer_service& s,
               std::uint32_t generation_of_service,
               callback&& f,
               nanos every,
               bool counted_from_end,
               const site& from) noexcept
      : runtime_timer(timer_kind::go_func, s, generation_of_service, every != 0),
        from_end(counted_from_end),
        call(std::move(f)),
        period(every),
        made_at(from) {
    // ordering: no other thread has the record yet.
    referenced.store(true, order::relaxed);
  }

  // uses: | runs ended, 13 bits | lifted | halted | callback destroyed | runs, 23 bits |
  //       | handles, 25 bits |
  static constexpr std::uint64_t handle = 1;
  static constexpr std::uint64_t run = std::uint64_t{1} << 25;
  static constexpr std::uint64_t callback_destroyed = std::uint64_t{1} << 48;
  static constexpr std::uint64_t halted = std::uint64_t{1} << 49;
  static constexpr std::uint64_t lifted = std::uint64_t{1} << 50;
  static constexpr std::uint64_t run_ended = std::uint64_t{1} << 51;
  static constexpr std::uint64_t counts = callback_destroyed - 1;
  static constexpr std::uint64_t all_handles = run - 1;
  static constexpr std::uint64_t all_runs = counts - all_handles;

  // Whether a run of the callback is under way.
  bool is_running() const noexcept { return (uses.load() & counts) >= run; }

  // Counts a copy of a handle. Caller: has one, or is in a run.
  void retain() noexcept {
    // ordering: made from the caller's handle or run.
    if ((uses.fetch_add(handle, order::relaxed) & all_handles) == all_handles) too_many("handles");
  }

  // Counts a handle if there is one, or a run. `this` may be memory whose record is gone.
  bool retain_if_counted() noexcept;

  // Destroys the captures although there are handles. Caller: has one, and the runtime
  // has ended: there is no run, and none will be.
  void end_callback() noexcept { call.reset(); }

  // Drops a handle (TR1).
  void release() noexcept;

  enum class begun : std::uint8_t {
    yes,
    after_lift,  // yes: see stop_waiters::note_run()
    no,          // not counted: the callback has been destroyed
  };

  // Counts a run. The count may have been zero: the timer is pending then.
  begun begin_run() noexcept {
    const std::uint64_t before = uses.fetch_add(run);
    if ((before & all_runs) == all_runs) too_many("runs at once");
    if ((before & (callback_destroyed | lifted)) == 0) return begun::yes;
    if ((before & callback_destroyed) == 0) return begun::after_lift;
    // A run of a destroyed callback that is counted for a moment does no harm.
    uses.fetch_sub(run);
    return begun::no;
  }

  // Caller: has itself changed `uses` to callback_destroyed.
  void destroy_callback() noexcept;

  atomic<std::uint64_t> uses{handle};
  bool keeps_alive = false;  // counted as holding the program: keepalive::change
  const bool from_end;
  // Used by the queue of due callbacks, guarded by its lock. Deadlines up to due_until
  // are due; a later one in force has an entry of its own.
  bool queued = false;
  bool deferred = false;  // set by defer(), as posted_as is by post()
  bool deferred_by_deferred = false;
  bool is_handler = false;  // of io::executor(): set before it is queued for the first time
  nanos due_until = 0;
  std::uint64_t posted_as = 0;  // 0: not posted, or a deferred callback that goes first
  timer_record* next = nullptr;
  callback call;
  atomic<nanos> period;                // 0: once
  clock_callback* on_clock = nullptr;  // the other clock's deadline that it keeps
  std::uint64_t last_lift = 0;         // guarded by the lock of stop_waiters, SW3
  const site made_at;

 private:
  // Ends the program: one more of `name` does not fit into `uses`.
  [[noreturn]] void too_many(const char* name) const noexcept;
};

}  // namespace VIGIL_DETAIL
