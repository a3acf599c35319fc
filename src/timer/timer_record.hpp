// timer_record: a runtime timer with a callback: what after_func and every make.
//
// The captures live as long as somebody can still want them: while there is a
// handle, while the timer is pending, and while a run is under way. Handles and
// runs are counted in one word, `uses`; pending is what `when` says, so arming
// and stopping touch no count.
//
// U1  Who takes `uses` to zero looks at `when`. Pending: the run to come, or
//     the end of the runtime, will come here again. Idle: it changes `uses`
//     from zero to `buried`, and only one who succeeds destroys the captures,
//     on its own thread: never the timer fiber, which touches no count.
// U2  A run adds itself to `uses` before it claims `when`, and gives up if it
//     finds it buried. So who sees the claim taken, and not by itself, sees the
//     run, or sees `uses` after it.
// U3  Without a handle and a run `when` can only be claimed, never armed.
//
// A dead entry holds only a reference to the record, not a use.
#pragma once

#include "timer/runtime_timer.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/timer.hpp>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

class timer_record : public internal::runtime_timer {
 public:
  timer_record(internal::timer_service& s,
               std::uint32_t generation_of_service,
               callback f,
               internal::nanos every,
               bool counted_from_end,
               const site& from) noexcept
      : runtime_timer(internal::timer_kind::go_func, s, generation_of_service, every != 0),
        call(std::move(f)),
        period(every),
        from_end(counted_from_end),
        made_at(from) {
    // ordering: nobody else has the record yet.
    referenced.store(true, internal::relaxed);
  }

  static constexpr std::uint64_t handle = 1;
  static constexpr std::uint64_t run = std::uint64_t{1} << 32;
  static constexpr std::uint64_t buried = std::uint64_t{1} << 63;

  // Runs of the callback under way.
  bool is_running() const noexcept { return (uses.load() & ~buried) >= run; }

  internal::atomic<std::uint64_t> uses{handle};  // handles, runs; or buried
  internal::atomic<bool> awaited{false};       // somebody is in stop_and_wait
  // The queue of due callbacks; guarded by its lock. Deadlines up to due_until
  // are due; a later one in force has an entry of its own.
  bool queued = false;
  internal::nanos due_until = 0;
  timer_record* next = nullptr;
  callback call;
  internal::atomic<internal::nanos> period;  // 0: once
  const bool from_end;
  const site made_at;
};

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
