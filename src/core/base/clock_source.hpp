// clock_source: where a runtime reads the time, the monotonic clock or a virtual one that
// its scheduler moves.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"

#include <ctime>

namespace VIGIL_DETAIL {

inline nanos read_clock(clockid_t clock) noexcept {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<nanos>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

inline nanos monotonic_now() noexcept {
  return read_clock(CLOCK_MONOTONIC);
}

// The same for a fifth of the price, but late by up to one tick of the kernel: 10 ms at
// most, more only if the whole machine stood still.
inline nanos coarse_monotonic_now() noexcept {
  return read_clock(CLOCK_MONOTONIC_COARSE);
}

class clock_source {
 public:
  clock_source() noexcept = default;

  bool is_virtual() const noexcept { return virtual_; }

  nanos now() const noexcept {
    // ordering: virtual time moves only while nothing else runs; readers on
    // other threads may see it late.
    return virtual_ ? virtual_now_.load(order::relaxed) : monotonic_now();
  }

  // The time as coarse_monotonic_now() tells it; exact on virtual time.
  nanos coarse_now() const noexcept { return virtual_ ? now() : coarse_monotonic_now(); }

  // Caller: before the runtime starts.
  void make_virtual(nanos start) noexcept {
    virtual_ = true;
    virtual_now_.store(start, order::relaxed);  // ordering: before any reader exists
  }

  // Caller: the scheduler, when nothing can run. Never goes back.
  // ordering: as in now()
  void jump_to(nanos t) noexcept { virtual_now_.store(t, order::relaxed); }

 private:
  friend struct debug_layout;

  bool virtual_ = false;
  atomic<nanos> virtual_now_{0};
};

}  // namespace VIGIL_DETAIL
