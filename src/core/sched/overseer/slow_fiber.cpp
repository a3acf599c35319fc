#include "core/sched/overseer/slow_fiber.hpp"

#include "core/base/assert.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/idle/tuning.hpp"
#include "core/sched/record/record_trigger.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

constexpr std::size_t places_named = 256;

}  // namespace

bool slow_fibers::heeds_triggers(const scheduler& s) noexcept {
  return s.events_outside->log().is_on() && !s.clock.is_virtual();
}

slow_fibers::slow_fibers(scheduler& of, nanos limit)
    : sched_(of),
      limit_(limit),
      heeds_triggers_(heeds_triggers(of)),
      looked_at_(of.workers().size()) {
  named_.reserve(places_named);
}

nanos slow_fibers::look(nanos now) noexcept {
  using limits = record_triggers::limits;
  const limits when = heeds_triggers_ ? triggers.present() : limits{};
  const nanos ran_for = std::min(limit_, when.ran_for);
  const nanos shortest = std::min(ran_for, when.timer_late);
  if (std::exchange(shortest_, shortest) == shortest && now < next_tick_) return next_tick_;
  if (shortest == never) return never;
  const bool is_late = is_timer_late(now, when.timer_late);
  for (std::size_t i = 0; i < looked_at_.size(); ++i) {
    worker& w = *sched_.workers()[i];
    const unsigned long stretch = w.counters.stretch();
    run_bounds::span ran;
    if (!w.has_run_for(ran)) continue;
    passed by{limit_kind::slow_fiber, ran_for, ran.at_least};
    if (ran.at_least > ran_for) {
      if (ran_for != limit_) by.kind = limit_kind::ran_for;
    } else if (is_late && ran.at_least > when.timer_late / 2) {
      by.kind = limit_kind::timer_late;
      by.limit = when.timer_late;
    } else {
      continue;
    }
    if (std::exchange(looked_at_[i], stretch) != stretch) name(w, stretch, by);
  }
  next_tick_ = saturating_add(now, std::max(shortest / 4, tuning::longest_look));
  return next_tick_;
}

// While a timer is late no worker has switched since its deadline. `next_deadline` alone
// may be that of a stopped timer.
bool slow_fibers::is_timer_late(nanos now, nanos limit) const noexcept {
  return limit != never && sched_.board.next_deadline.load() < now - limit &&
         sched_.timers().anything_due(now - limit);
}

void slow_fibers::write(long_run& r, const passed& by) noexcept {
  const fiber_words who(r.who);
  const place_in_words place(r.who);
  const double held = static_cast<double>(by.held) / 1e6;
  const double limit = static_cast<double>(by.limit) / 1e6;
  switch (by.kind) {
    case limit_kind::slow_fiber:
      r.limit = "slow_fiber";
      std::snprintf(
          r.text,
          sizeof r.text,
          "slow_fiber: %s, started at %s, has held its worker %.3f ms without a switch, and still "
          "does; options::slow_fiber is %.3f ms. What blocks its thread (std::mutex, "
          "std::this_thread::sleep_for, read()) keeps others waiting: use vigil's own, or "
          "vigil::blocking; in a long computation call this_fiber::yield now and then",
          who.text(),
          place.text,
          held,
          limit);
      break;
    case limit_kind::ran_for:
      r.limit = "ran_for";
      std::snprintf(
          r.text,
          sizeof r.text,
          "ran_for: %s, started at %s, has held its worker %.3f ms without a switch, and still "
          "does; ran_for of inspect::record_on is %.3f ms",
          who.text(),
          place.text,
          held,
          limit);
      break;
    case limit_kind::timer_late:
      r.limit = "timer_late";
      std::snprintf(
          r.text,
          sizeof r.text,
          "timer_late: %s, started at %s, has held its worker %.3f ms without a switch, and still "
          "does; a timer that waits for a worker is late by more than %.3f ms, timer_late of "
          "inspect::record_on",
          who.text(),
          place.text,
          held,
          limit);
      break;
  }
}

// A place counts as named once its fiber was seen in the middle of the run.
void slow_fibers::name(const worker& w, unsigned long stretch, const passed& by) noexcept {
  if (named_.size() == places_named) return;
  const handler_scope inside;
  const slab_hold hold;
  long_run r{.on = w, .stretch = stretch};
  fiber_view& f = r.who;
  if (!view_of_running(w, r.where, f) || f.role == fiber_role::timer) return;
  // If the count is another one, the snapshot or the length may be of a later stretch.
  if (!r.goes_on() || is_named({f.file, f.line})) return;
  write(r, by);
  const dump_extension* const more = installed_extension.load();
  if (more == nullptr) {
    warn("%s", r.text);
  } else if (!more->report(r)) {
    return;
  }
  named_.push_back({f.file, f.line});
}

bool slow_fibers::is_named(const site& place) const noexcept {
  return std::any_of(named_.begin(), named_.end(), [&](const site& s) {
    return s.file == place.file && s.line == place.line;
  });
}

bool long_run::goes_on() const noexcept {
  order_plain_memory();
  return on.counters.stretch() == stretch;
}

}  // namespace VIGIL_DETAIL
