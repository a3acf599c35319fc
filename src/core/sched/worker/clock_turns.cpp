#include "core/sched/worker/clock_turns.hpp"

#include <utility>

namespace VIGIL_DETAIL {

bool clock_turns::has_come(nanos next, bool is_looking) noexcept {
  if (clock_.is_virtual()) return next <= clock_.now();
  const nanos now = just_read_ != 0 ? std::exchange(just_read_, 0) : monotonic_now();
  const nanos each = std::max<nanos>(1, (now - last_clock_) / since_clock_);
  until_clock_ = is_looking || looks_each_turn_
                     ? 1
                     : static_cast<std::uint32_t>(
                           std::clamp<nanos>(tuning::clock_interval / each, 1, tuning::most_turns));
  since_clock_ = 0;
  last_clock_ = now;
  if (next > now) return false;
  until_clock_ = 1;
  return true;
}

// Fibers that run for long between two switches make few turns, so busy workers
// look for I/O by time as well.
bool clock_turns::deadline_has_come() noexcept {
  if (clock_.is_virtual()) return true;
  // ordering: a hint; of two workers that come here at once both look.
  if (next_poll_.load(order::relaxed) <= last_clock_) {
    next_poll_.store(last_clock_ + tuning::longest_look, order::relaxed);  // ordering: as above
    poll();
  }
  // Pairs with the writes that due() reads: it may be time for I/O alone.
  return next_deadline_.load(order::acquire) <= last_clock_;
}

void clock_turns::slept(bool in_watch) noexcept {
  read_clock_next();
  if (in_watch) turn_ = 0;
  if (watches_.present().knows_io()) {
    just_read_ = monotonic_now();
    next_poll_.store(just_read_ + tuning::longest_look, order::relaxed);  // ordering: a hint
  }
}

}  // namespace VIGIL_DETAIL
