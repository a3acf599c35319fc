// queue_delays: how long fibers that are ready wait for a worker, of one fiber in 64. A
// look at the clock for each would cost as much as the switch.
//
// A worker has one: it stamps fibers that become ready on it, and notes those that it
// runs, whichever worker has stamped them. On virtual time nothing is timed. One of those
// that it has stamped is followed until it runs, so that any thread can tell for how long
// it has waited by now. A worker also tells the flight recorder of each fiber that
// becomes ready: one look serves both.
#pragma once

#include "core/base/clock_source.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/queue/delay_counters.hpp"
#include "core/sched/record/event_log.hpp"

#include <vigil/stats.hpp>

#include <utility>

namespace VIGIL_DETAIL {

class queue_delays {
 public:
  queue_delays(event_log& log, bool is_virtual) noexcept
      : log_(log), is_virtual_(is_virtual), unseen_(log.is_on() ? 1 : timed_of) {}

  // f has become ready. Caller: before it is queued.
  void begin(fiber& f) noexcept {
    if (--unseen_ == 0) [[unlikely]]
      look_at(f, false);
  }

  // The same, and the recorder has just been told that it was started.
  void begin_started(fiber& f) noexcept {
    if (--unseen_ == 0) [[unlikely]]
      look_at(f, true);
  }

  // f is about to run.
  void end(fiber& f) noexcept {
    if (f.queued_at != 0) [[unlikely]]
      note_end(f);
  }

  // For how long the fiber that is followed has waited at `now`, or a moment before; 0:
  // none is. Any thread.
  nanos followed_for(nanos now) const noexcept {
    // ordering: a statistic. The fiber waited at `now`, unless it began to wait later.
    const nanos since = followed_since_.load(order::relaxed);
    return since != 0 && since < now ? now - since : 0;
  }

  void add_stats(delay_histogram& h) const noexcept { counters_.add_stats(h); }

 private:
  static constexpr unsigned timed_of = 64;

  [[gnu::noinline]] void look_at(fiber& f, bool is_started) noexcept {
    if (!log_.is_on()) {
      unseen_ = timed_of;
    } else {
      unseen_ = 1;
      if (--untimed_ != 0) return record(f, is_started);
      untimed_ = timed_of;
      record(f, is_started);
    }
    if (is_virtual_) return;
    f.queued_at = monotonic_now();
    f.timed_by = this;
    // ordering: its own thread alone sets it if it is 0.
    if (followed_since_.load(order::relaxed) == 0) {
      followed_since_.store(f.queued_at, order::relaxed);  // ordering: as above
    }
  }

  [[gnu::noinline]] void note_end(fiber& f) noexcept {
    const nanos since = std::exchange(f.queued_at, 0);
    counters_.note(monotonic_now() - since);
    // Two that were stamped at one time count as one.
    // ordering: the fiber came by a queue, and the store before it.
    atomic<nanos>& followed = f.timed_by->followed_since_;
    if (followed.load(order::relaxed) == since) followed.store(0, order::relaxed);
  }

  void record(const fiber& f, bool is_started) noexcept {
    if (is_started) return log_.write_too(event_kind::ready, f.identity.id);
    log_.write(event_kind::ready, f.identity.id);
  }

  event_log& log_;
  const bool is_virtual_;
  unsigned unseen_;              // fibers up to the next look
  unsigned untimed_ = timed_of;  // ... and to the next one that is timed, if all are seen
  delay_counters counters_;
  atomic<nanos> followed_since_{0};  // 0: none is; set by its thread, cleared by any worker
};

}  // namespace VIGIL_DETAIL
