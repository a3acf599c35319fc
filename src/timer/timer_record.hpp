// timer_record: a runtime timer with a callback: what after_func and every make.
//
// The captures live as long as somebody can still want them: `uses` counts the
// handles, plus one while the timer is pending, plus one for each run. Who
// takes it to zero destroys the captures, on its own thread: never the timer
// fiber, which touches no count. A dead entry holds only a reference to the
// record, not a use.
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
      : runtime_timer(internal::timer_kind::go_func, s, generation_of_service),
        call(std::move(f)),
        period(every),
        from_end(counted_from_end),
        made_at(from) {
    // ordering: nobody else has the record yet.
    referenced.store(true, internal::relaxed);
  }

  bool is_periodic() const noexcept {
    return period.load(internal::relaxed) != 0;  // ordering: zero or not never changes
  }

  internal::atomic<std::uint32_t> uses{1};     // starts with the first handle
  internal::atomic<std::uint32_t> running{0};  // runs of the callback under way
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
