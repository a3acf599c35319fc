#include "sched/turn_trials.hpp"

#include "base/clock_source.hpp"

namespace VIGIL_DETAIL {

bool turn_trials::are_short(const fiber& f) const noexcept {
  if (f.role != fiber_role::user) return false;
  if (f.turns.short_ones >= short_turns::enough) return true;
  return !f.turns.has_run && kinds_.are_short(f.table);
}

// Drawn: of fibers that take turns a counter would always meet the same one.
bool turn_trials::draws() noexcept {
  constexpr std::uint32_t between_trials = 16;
  if (until_draw_ > 1) {
    --until_draw_;
    return false;
  }
  until_draw_ = 1 + dice_.below(2 * between_trials);
  return true;
}

void turn_trials::begin(const fiber& f) noexcept {
  first_turn_ = !f.turns.has_run;
  began_ = monotonic_now();
}

void turn_trials::end(fiber& f) noexcept {
  const bool is_short = monotonic_now() - began_ < short_turns::limit;
  f.turns.on_trial = false;
  began_ = 0;
  if (!is_short) {
    f.turns.short_ones = 0;
  } else if (f.turns.short_ones < short_turns::enough) {
    ++f.turns.short_ones;
  }
  if (first_turn_) kinds_.add(f.table, is_short);
}

}  // namespace VIGIL_DETAIL
