#include "core/sched/overseer/stuck_watch.hpp"

#include "core/base/assert.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/worker/ready_work.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

constexpr nanos shortest_tick = 1'000'000;
constexpr nanos longest_tick = 500'000'000;

// One is not enough: a program that wakes once a second would ring each time.
constexpr int most_ticks_at_rest = 8;  // 4 s, unless the limit is below 2 s

// Looks at each worker's counts, for the bounds of its present stretch, and returns the
// sum of their switches.
std::uint64_t look_at_runs(const worker_list& workers) noexcept {
  std::uint64_t sum = 0;
  for (const auto& w : workers) {
    run_bounds::span unused;
    w->has_run_for(unused);
    sum += w->counters.switches.get();
  }
  return sum;
}

// Whether a worker that runs no fiber could take what waits, and does not: it is in a
// handler, for which it counts as asleep. Others that run none have nothing to do.
bool a_handler_keeps_one(const scheduler& s) noexcept {
  if (!s.watches().present().knows_io()) return false;
  const bool waits_for_any = waits_for_any_worker(s);
  const worker_list& all = s.workers();
  return std::any_of(all.begin(), all.end(), [waits_for_any](const auto& w) {
    return current_of(*w) == nullptr && (waits_for_any || w->has_pinned());
  });
}

}  // namespace

bool stuck_count::look(nanos now, bool has_switched, bool somebody_waits) noexcept {
  const bool late = now - last_look_ > tick_ + longest_tick;
  // If there was no switch in between, a fiber that waits at both looks has waited from
  // one to the other.
  counted_ = !late && waited_ && somebody_waits && !has_switched ? counted_ + tick_ : 0;
  last_look_ = now;
  waited_ = somebody_waits;
  if (reported_ || counted_ < limit_) return false;
  reported_ = true;
  return true;
}

stuck_watch::stuck_watch(scheduler& of, nanos limit) noexcept
    : sched_(of),
      limit_(limit),
      tick_(std::clamp(limit / 4, shortest_tick, longest_tick)),
      count_(limit, tick_) {}

bool stuck_watch::all_sleep() const noexcept {
  return sched_.idle().asleep() == sched_.workers().size();
}

nanos stuck_watch::look(nanos now) noexcept {
  if (now < next_tick_) return next_tick_;
  const std::uint64_t switches = look_at_runs(sched_.workers());
  const bool has_switched = switches != std::exchange(switches_, switches);
  const bool somebody_waits = waits_for_a_worker(sched_);
  if (count_.look(now, has_switched, somebody_waits) && !process_is_exiting()) report();
  next_tick_ = saturating_add(now, tick_);
  // While a fiber waits, nothing is at rest: a worker that sleeps in an io_context runs
  // its handlers there, and may never come out.
  ticks_at_rest_ = has_switched || somebody_waits || !all_sleep() ? 0 : ticks_at_rest_ + 1;
  if (ticks_at_rest_ < most_ticks_at_rest) return next_tick_;
  if (!sched_.idle().overseen.attends_no_more([this] { return all_sleep(); })) return next_tick_;
  next_tick_ = 0;
  ticks_at_rest_ = 0;
  return never;
}

void stuck_watch::report() noexcept {
  warn(
      "no worker has switched to another fiber for %.3f s (options::stuck_limit), although %s. "
      "Each of these fibers keeps its worker: it computes, or blocks its thread: in a call that "
      "blocks (read(), getaddrinfo(), std::this_thread::sleep_for, a client library), which "
      "belongs into vigil::blocking, in a function-local static or a std::call_once whose "
      "initialiser waits, or in a std::mutex that is held across a wait%s",
      static_cast<double>(limit_) / 1e9,
      waits_for_any_worker(sched_)
          ? "a timer is due or a fiber is ready"
          : "a fiber is ready that is pinned to one of them, so that no other may take it",
      a_handler_keeps_one(sched_)
          ? ". A worker whose fiber is not named is kept by a handler of its io_context"
          : "");
  process_dump_running(2, sched_);
}

}  // namespace VIGIL_DETAIL
