#include "core/sched/overseer/overseer.hpp"

#include "core/base/at_end.hpp"
#include "core/base/clock_source.hpp"
#include "core/machine/process_threads.hpp"
#include "core/machine/stack.hpp"
#include "core/machine/without_signals.hpp"
#include "core/sched/idle/tuning.hpp"
#include "core/sched/worker/ready_work.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include <pthread.h>

namespace VIGIL_DETAIL {

// --- what is left

// Whether a worker sleeps, and none looks. All may sleep: one runs a handler in the
// watch, or has found a deadlock as it lay down, and made the fiber that ends it ready.
bool left_work::is_beside_a_sleeper() const noexcept {
  return sched_.idle().asleep() != 0 && sched_.idle().looking() == 0;
}

// The time from which the watch wants a worker, for a deadline or for I/O; never, if it
// is not left. A worker that reads the clock fires the one and moves the other, but its
// turns may have become slow since it read the clock last, and it counts up to most_turns
// of them: then this time passes.
nanos left_work::watch_is_wanted_at() const noexcept {
  const nanos deadline = sched_.board.next_deadline.load();
  nanos first = deadline < sched_.idle().earliest() ? deadline : never;
  if (!sched_.idle().is_watched() && sched_.outside.awaits_io()) {
    // Wanted even before the first look is due. ordering: a hint
    first = std::min({first, sched_.next_poll.load(order::relaxed), never - 1});
  }
  return first;
}

left_work::found left_work::look(nanos now) noexcept {
  found f;
  const bool counts = is_beside_a_sleeper();
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const worker& w = *sched_.workers()[i];
    const unsigned long switches = w.counters.switches.get();
    const bool has_switched = switches != std::exchange(seen_[i].switches, switches);
    const bool has_ready = counts && w.has_ready();
    f.moved = f.moved || has_switched;
    f.some = f.some || has_ready;
    f.still = f.still || (has_ready && seen_[i].had_ready && !has_switched);
    seen_[i].had_ready = has_ready;
  }
  const nanos wanted = counts ? watch_is_wanted_at() : never;
  const bool in_common = counts && (wanted != never || any_work_in_common(sched_));
  f.some = f.some || in_common;
  f.still = f.still || (in_common && some_in_common_ && !f.moved);
  some_in_common_ = in_common;
  const nanos passed = wanted <= now ? wanted : never;
  f.still = f.still || (passed != never && passed == overdue_);
  overdue_ = passed;
  return f;
}

// --- the thread

namespace {

bool watches_for_stuck(const scheduler& s) noexcept {
  return s.settings().stuck_limit.count() > 0 && !s.clock.is_virtual();
}

bool watches_runs(const scheduler& s) noexcept {
  return s.settings().slow_fiber.count() > 0 || slow_fibers::heeds_triggers(s);
}

nanos or_never(std::chrono::nanoseconds limit) noexcept {
  return limit.count() > 0 ? limit.count() : never;
}

}  // namespace

// A virtual clock may stand still for ever: stacks do not cool there.
bool overseer::is_needed(const scheduler& s) noexcept {
  const scheduler_options& settings = s.settings();
  const bool stacks_cool = settings.warm_stacks != 0 && !settings.is_guest && !s.clock.is_virtual();
  return stacks_cool || watches_for_stuck(s) || watches_runs(s) || s.workers().size() > 1;
}

overseer::overseer(scheduler& of) : sched_(of), by_(of.idle().overseen), left_(of) {
  const scheduler_options& settings = of.settings();
  if (watches_runs(of)) slow_.emplace(of, or_never(settings.slow_fiber));
  // It also tells when nobody need look at the runs, since all workers sleep.
  if (watches_for_stuck(of) || (slow_ && !of.clock.is_virtual())) {
    stuck_.emplace(of, or_never(settings.stuck_limit));
  }
  by_.begin();
  process_count_quiet_threads(1);  // it starts nothing
  const at_end looked_at([this] {
    if (thread_.joinable()) return;
    process_count_quiet_threads(-1);
    by_.end();
  });
  const without_signals blocked;
  try {
    thread_ = std::thread([this] { body(); });
  } catch (const std::system_error& e) {
    throw std::system_error(e.code(),
                            "vigil::run: the overseer's thread cannot be started; raise the limit "
                            "on threads (ulimit -u, cgroup pids.max)");
  }
}

overseer::~overseer() {
  by_.end();
  thread_.join();
}

void overseer::body() noexcept {
  process_is_quiet_thread();  // counts itself out at its end
  ::pthread_setname_np(::pthread_self(), "vigil/overseer");
  for (;;) {
    by_.clear();
    if (by_.is_over()) return;
    const nanos now = monotonic_now();
    nanos until = look_at_left(now);
    if (stuck_ && by_.attends()) until = std::min(until, stuck_->look(now));
    if (slow_ && by_.attends()) until = std::min(until, slow_->look(now));
    while (!decay_stacks()) {
    }
    const decay_attendant decay;
    sched_.overseer_waits.add();
    by_.sleep_until(std::min(until, decay.when()));
  }
}

// Returns when it looks next.
nanos overseer::look_at_left(nanos now) noexcept {
  if (!by_.looks()) return never;
  if (interval_ != 0 && now < next_look_) return next_look_;
  const bool is_first = interval_ == 0;
  sched_.overseer_looks.add();
  const left_work::found f = left_.look(now);
  if (!is_first && f.still) {
    sched_.idle().wake_one();
    interval_ = 0;
  } else if (!is_first && !f.some && !f.moved &&
             by_.rests([this, now] { return !left_.look(now).some; })) {
    interval_ = 0;
    return never;
  }
  interval_ = std::clamp(2 * interval_, tuning::shortest_look, tuning::longest_look);
  next_look_ = now + interval_;
  return next_look_;
}

}  // namespace VIGIL_DETAIL
