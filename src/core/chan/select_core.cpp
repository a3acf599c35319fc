#include "core/chan/channel_core.hpp"
#include "core/chan/selecting.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/worker/turn_budget.hpp"

#include <stdexcept>

namespace VIGIL_DETAIL {
namespace {

constexpr std::size_t none = selecting::none;

std::size_t one_round(selecting& s, const shown_select& all) {
  s.begin_round();
  caller self(s.round_limit());
  const std::size_t taken = s.take_or_queue(self.as_owner());
  if (taken == selecting::refused) self.refuse("select");
  if (taken != none) return taken;
  outcome result = outcome::open;
  try {
    result = self.wait(s.open_ticket(), s.awaits(all));
  } catch (...) {
    s.take_back();
    throw;
  }
  const std::size_t winner = s.take_back();
  if (winner != none) return winner;
  self.throw_if_ended(result);
  return s.ends_early() ? selecting::again : s.timed();
}

[[gnu::noinline]] std::size_t select_among(select_case* const* cases,
                                           std::size_t count,
                                           choice mode) {
  selecting s(cases, count, mode);
  const std::size_t ready = s.look_at_each();
  if (ready != none) return ready;
  for (;;) {
    const std::size_t taken = one_round(s, {cases, count});
    if (taken != selecting::again) return taken;
  }
}

// If only one case may be ready, there is nothing to draw.
std::size_t select_one(select_case* const* cases, std::size_t count, choice mode) {
  std::size_t only = none;
  std::size_t others = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_near(*cases[i])) {
      if (only != none) return select_among(cases, count, mode);
      only = i;
    } else if (mode == choice::ordered && cases[i]->object != nullptr) {
      return select_among(cases, count, mode);  // a far timer has its turn before others
    } else if (cases[i]->type == select_case::kind::otherwise && ++others == 2) {
      return select_among(cases, count, mode);  // which says what is wrong
    }
  }
  if (only != none) {
    if (cases[only]->table->look(*cases[only])) return only;
  }
  return select_among(cases, count, mode);
}

[[gnu::noinline]] std::size_t select_later(select_case* const* cases,
                                           std::size_t count,
                                           choice mode) {
  const kept_cases kept(cases, count);
  const late_call late;
  return select_one(cases, count, mode);
}

}  // namespace

void throw_select_within() {
  throw std::logic_error(
      "vigil::select: the list of cases is being selected from already, by the select whose "
      "function is running; give the inner select a list of its own");
}

std::size_t select(select_case* const* cases, std::size_t count, choice mode) {
  if (spend_calls()) [[unlikely]]
    return detail::select_later(cases, count, mode);
  return detail::select_one(cases, count, mode);
}

}  // namespace VIGIL_DETAIL
