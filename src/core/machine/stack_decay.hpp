// stack_decay: how many idle stacks may keep their memory, as time passes.
//
// The danger. A burst of fibers that comes again pays a page fault for each stack whose
// memory was given back; a burst that does not come again must not hold memory for ever.
//
// The rule. Time is cut into windows of 1.25 s. The pool notes the peak number of taken
// stacks in each of the latest eight, which are ten seconds. The part of a peak that is
// not taken now may stay warm: all of it in its window and the next, then at most half,
// and less with each window. After the eighth none of it may. The ends of windows are the
// steps of the decay: few, because a sleeping worker wakes for each.
//
// Used under the pool's lock. It reads no clock.
#pragma once

#include "core/base/nanos.hpp"

#include <algorithm>
#include <cstddef>

namespace VIGIL_DETAIL {

class stack_decay {
 public:
  static constexpr std::size_t windows = 8;

  nanos step = 1'250'000'000;  // the length of a window; tests change it

  // The most stacks that may be warm; 0: none, and time does not matter.
  std::size_t limit() const noexcept { return limit_; }

  void set_limit(std::size_t stacks) noexcept { limit_ = stacks; }

  // Counts the stacks that are taken now. Returns true if a window has ended since the
  // last call. The caller counts before it releases, so it misses no peak.
  bool note(nanos now, std::size_t taken) noexcept;

  // Forgets all peaks: nothing may stay warm until more is taken.
  void forget(nanos now, std::size_t taken) noexcept;

  std::size_t allowed(std::size_t taken) const noexcept;

  // When the present window ends.
  nanos next_step() const noexcept { return ends_; }

 private:
  // In sixteenths, by age.
  static constexpr std::size_t shares[windows] = {16, 16, 8, 6, 4, 3, 2, 1};

  std::size_t limit_ = 0;
  nanos ends_ = 0;
  std::size_t peaks_[windows]{};  // the present window's first
};

inline bool stack_decay::note(nanos now, std::size_t taken) noexcept {
  if (now < ends_) {
    peaks_[0] = std::max(peaks_[0], taken);
    return false;
  }
  const auto ended = 1 + static_cast<std::size_t>((now - ends_) / step);
  const std::size_t gone = std::min(ended, windows);
  std::copy_backward(peaks_, peaks_ + windows - gone, peaks_ + windows);
  std::fill_n(peaks_, gone, taken);
  ends_ += static_cast<nanos>(ended) * step;
  return true;
}

inline void stack_decay::forget(nanos now, std::size_t taken) noexcept {
  std::fill_n(peaks_, windows, taken);
  ends_ = now + step;
}

inline std::size_t stack_decay::allowed(std::size_t taken) const noexcept {
  std::size_t most = 0;
  if (limit_ == 0) return most;
  for (std::size_t age = 0; age < windows; ++age) {
    if (peaks_[age] > taken) most = std::max(most, (peaks_[age] - taken) * shares[age] / 16);
  }
  return std::min(most, limit_);
}

}  // namespace VIGIL_DETAIL
