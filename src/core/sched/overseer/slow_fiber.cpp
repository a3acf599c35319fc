#include "core/sched/overseer/slow_fiber.hpp"

#include "core/base/assert.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/idle/tuning.hpp"
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

slow_fibers::slow_fibers(scheduler& of, nanos limit)
    : sched_(of),
      limit_(limit),
      tick_(std::max(limit / 4, tuning::longest_look)),
      looked_at_(of.workers().size()) {
  named_.reserve(places_named);
}

nanos slow_fibers::look(nanos now) noexcept {
  if (now < next_tick_) return next_tick_;
  for (std::size_t i = 0; i < looked_at_.size(); ++i) {
    worker& w = *sched_.workers()[i];
    const unsigned long stretch = w.counters.stretch();
    run_bounds::span ran;
    if (!w.has_run_for(ran) || ran.at_least <= limit_) continue;
    if (std::exchange(looked_at_[i], stretch) != stretch) name(w, stretch, ran.at_least);
  }
  next_tick_ = saturating_add(now, tick_);
  return next_tick_;
}

// A place counts as named once its fiber was seen in the middle of the run.
void slow_fibers::name(const worker& w, unsigned long stretch, nanos held) noexcept {
  if (named_.size() == places_named) return;
  const handler_scope inside;
  const slab_hold hold;
  long_run r{.on = w, .stretch = stretch};
  fiber_view& f = r.who;
  if (!view_of_running(w, r.where, f) || f.role == fiber_role::timer) return;
  // If the count is another one, the snapshot or the length may be of a later stretch.
  if (!r.goes_on() || is_named({f.file, f.line})) return;
  std::snprintf(
      r.text,
      sizeof r.text,
      "slow_fiber: %s, started at %s, has held its worker %.3f ms without a switch, and still "
      "does; options::slow_fiber is %.3f ms. What blocks its thread (std::mutex, "
      "std::this_thread::sleep_for, read()) keeps others waiting: use vigil's own, or "
      "vigil::blocking; in a long computation call this_fiber::yield now and then",
      fiber_words(f).text(),
      place_in_words(f).text,
      static_cast<double>(held) / 1e6,
      static_cast<double>(limit_) / 1e6);
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
