// record_triggers: the events after which the recording is to be written out.
// vigil-inspect sets them (inspect::record_on); without it none is set.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/record/event_log.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

enum class trigger_kind : std::uint8_t { timer_late, ran_long, deadline_missed };

// Its words are settings, each for itself: a writer sees a new one a moment later.
class record_triggers {
 public:
  // Called on the worker that has seen it, in the middle of its work. It may wake a
  // thread; for `ran_long` the spinlock of a channel may be held, otherwise none is.
  // `by`: the lateness, or the time for which a fiber ran; otherwise 0.
  using action = void (*)(trigger_kind kind, nanos by, event_clock clock) noexcept;

  constexpr record_triggers() noexcept = default;

  struct limits {
    nanos timer_late = never;
    nanos ran_for = never;
    std::uint64_t ran_for_ticks = ~std::uint64_t{0};
    bool deadline_missed = false;
  };

  VIGIL_FOR_IO void set(const limits& when, action act) noexcept;

  // For a thread that sees a limit pass: timer_late and ran_for alone.
  limits present() const noexcept {
    // ordering: settings.
    return {.timer_late = late_.load(order::relaxed), .ran_for = ran_.load(order::relaxed)};
  }

  void timer_late(nanos late, event_clock clock) const noexcept {
    // ordering: a setting.
    if (late > late_.load(order::relaxed)) [[unlikely]]
      pull(trigger_kind::timer_late, late, clock);
  }

  // `units`: of that clock. On virtual time no fiber runs for long.
  void ran_for(std::uint64_t units, event_clock clock) const noexcept {
    // ordering: settings.
    const std::uint64_t limit = clock == event_clock::ticks
                                    ? ran_ticks_.load(order::relaxed)
                                    : static_cast<std::uint64_t>(ran_.load(order::relaxed));
    if (units > limit) [[unlikely]]
      ran_long(units, clock);
  }

  void deadline_missed(event_clock clock) const noexcept {
    if (missed_.load(order::relaxed))  // ordering: a setting
      pull(trigger_kind::deadline_missed, 0, clock);
  }

 private:
  void pull(trigger_kind kind, nanos by, event_clock clock) const noexcept;
  void ran_long(std::uint64_t units, event_clock clock) const noexcept;

  atomic<nanos> late_{never};
  atomic<nanos> ran_{never};
  atomic<std::uint64_t> ran_ticks_{~std::uint64_t{0}};
  atomic<bool> missed_{false};
  atomic<action> act_{nullptr};
};

VIGIL_FOR_IO extern record_triggers triggers;

}  // namespace VIGIL_DETAIL
