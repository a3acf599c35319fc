// timer_record: a runtime timer with a callback: what after_func and every make.
//
// The captures live as long as somebody can still want them: while there is a
// handle, while the timer is pending, and while a run is under way. Handles and
// runs are counted in one word, `uses`; pending is what `when` says, so arming
// and stopping touch no count.
//
// U1  The last to go, handle or run, looks at `when`. Pending: the run to come
//     is the last. Idle: it changes `uses` to `callback_destroyed`, and only the
//     one that succeeds destroys the captures, on its own thread: never the timer
//     fiber, which touches no count.
// U2  A run adds itself to `uses` before it claims `when`, and gives up if the
//     callback has been destroyed. Ended runs are counted in the same word, so that a handle
//     that saw the timer pending does not miss the run that came since.
// U3  Without a handle `when` can only be claimed, never armed.
// U4  A run looks back at the record after its count, under the reference of
//     its queue entry; a handle has none of its own, and looks before.
//
// A dead entry holds only a reference to the record, not a use.
#pragma once

#include "timer/runtime_timer.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/timer.hpp>

namespace vigil::inline VIGIL_ABI::detail {

class timer_record : public detail::runtime_timer {
 public:
  timer_record(detail::timer_service& s,
               std::uint32_t generation_of_service,
               callback f,
               detail::nanos every,
               bool counted_from_end,
               const site& from) noexcept
      : runtime_timer(detail::timer_kind::go_func, s, generation_of_service, every != 0),
        call(std::move(f)),
        period(every),
        from_end(counted_from_end),
        made_at(from) {
    // ordering: nobody else has the record yet.
    referenced.store(true, detail::relaxed);
  }

  // uses: | runs ended, 15 bits | callback destroyed | runs, 16 bits | handles, 32 bits |
  static constexpr std::uint64_t handle = 1;
  static constexpr std::uint64_t run = std::uint64_t{1} << 32;
  static constexpr std::uint64_t callback_destroyed = std::uint64_t{1} << 48;
  static constexpr std::uint64_t run_ended = std::uint64_t{1} << 49;
  static constexpr std::uint64_t counts = callback_destroyed - 1;

  // Runs of the callback under way.
  bool is_running() const noexcept { return (uses.load() & counts) >= run; }

  // A handle ends (U1).
  void drop_handle() noexcept;

  // False if the callback has been destroyed. A run may begin from zero: the timer is
  // pending then.
  bool begin_run() noexcept {
    // A run of a destroyed callback that is counted for a moment does no harm.
    if ((uses.fetch_add(run) & callback_destroyed) == 0) return true;
    uses.fetch_sub(run);
    return false;
  }

  // Caller: `uses` says callback_destroyed, by its hand.
  void destroy_callback() noexcept;

  detail::atomic<std::uint64_t> uses{handle};
  bool keeps_alive = false;             // counted as holding the program: keepalive::change
  detail::atomic<bool> awaited{false};  // somebody is in stop_and_wait
  // The queue of due callbacks; guarded by its lock. Deadlines up to due_until
  // are due; a later one in force has an entry of its own.
  bool queued = false;
  detail::nanos due_until = 0;
  // post() and defer(); 0: neither, or a deferred one that goes first.
  std::uint64_t posted_as = 0;
  bool deferred = false;
  bool deferred_by_deferred = false;
  timer_record* next = nullptr;
  callback call;
  detail::atomic<detail::nanos> period;  // 0: once
  const bool from_end;
  const site made_at;
};

}  // namespace vigil::inline VIGIL_ABI::detail
