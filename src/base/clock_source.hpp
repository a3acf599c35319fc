// Where a runtime reads the time: the monotonic clock, or a virtual one that
// its scheduler moves.
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"

#include <ctime>

namespace vigil::inline VIGIL_ABI::detail {

inline nanos read_clock(clockid_t which) noexcept {
  timespec t{};
  ::clock_gettime(which, &t);
  return static_cast<nanos>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

inline nanos monotonic_now() noexcept {
  return read_clock(CLOCK_MONOTONIC);
}

// For a fifth of the price, and behind by a tick of the kernel's: 10 ms at most,
// more only if the whole machine stood still.
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
    return virtual_ ? virtual_now_.load(relaxed) : monotonic_now();
  }

  // The same for a fifth of the price, and behind by some milliseconds at most.
  nanos coarse_now() const noexcept { return virtual_ ? now() : coarse_monotonic_now(); }

  // Before the runtime starts.
  void make_virtual(nanos start) noexcept {
    virtual_ = true;
    virtual_now_.store(start, relaxed);  // ordering: before any reader exists
  }

  // Caller: the scheduler, when nothing can run. Never goes back.
  void jump_to(nanos t) noexcept { virtual_now_.store(t, relaxed); }  // ordering: as in now()

 private:
  bool virtual_ = false;
  atomic<nanos> virtual_now_{0};
};

}  // namespace vigil::inline VIGIL_ABI::detail
