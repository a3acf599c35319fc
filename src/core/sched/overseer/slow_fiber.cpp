#include "core/sched/overseer/slow_fiber.hpp"

#include "core/base/assert.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/idle/tuning.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <cstddef>
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

void slow_fibers::name(const worker& w, unsigned long stretch, nanos held) noexcept {
  fiber_view f;
  if (!view_of_running(w, f) || f.role == fiber_role::timer) return;
  // If the count is another one, the snapshot or the length may be of a later stretch.
  order_plain_memory();
  if (w.counters.stretch() != stretch || !is_new({f.file, f.line})) return;
  warn(
      "slow_fiber: %s, started at %s, has held its worker %.3f ms without a switch, and still "
      "does; options::slow_fiber is %.3f ms. What blocks its thread (std::mutex, "
      "std::this_thread::sleep_for, read()) keeps others waiting: use vigil's own, or "
      "vigil::blocking; in a long computation call this_fiber::yield now and then",
      fiber_words(f).text(),
      place_in_words(f).text,
      static_cast<double>(held) / 1e6,
      static_cast<double>(limit_) / 1e6);
}

bool slow_fibers::is_new(const site& place) noexcept {
  const auto is_it = [&](const site& s) { return s.file == place.file && s.line == place.line; };
  if (named_.size() == places_named || std::any_of(named_.begin(), named_.end(), is_it))
    return false;
  named_.push_back(place);
  return true;
}

}  // namespace VIGIL_DETAIL
