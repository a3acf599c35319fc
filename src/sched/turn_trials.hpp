// turn_trials: one worker times turns of fibers now and then, to know which fibers take
// short turns and may run beside a pinned fiber (docs/decisions/0014).
//
// A turn is timed only if that decides something: the next turn of a fiber that was
// refused for want of knowledge (fiber_turns::on_trial), and about each 16th of those
// that were let through. The result is kept in the fiber (fiber_turns::short_ones), and
// for the first turn of a new fiber also under its kind, which all workers share
// (short_turns).
//
// Invariant: at most one trial is under way, that of the fiber that runs on this
// worker; it ends when that fiber leaves by itself.
//
// The owner's thread alone uses it. No lock.
#pragma once

#include "base/nanos.hpp"
#include "base/random.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/short_turns.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class turn_trials {
 public:
  turn_trials(short_turns& kinds, random& dice) noexcept : kinds_(kinds), dice_(dice) {}

  // Whether f's turns have been short of late, or the first ones of its kind if it is
  // new. Only user code is known.
  bool are_short(const fiber& f) const noexcept;

  // Whether to time the turn of a fiber that is let through.
  bool draws() noexcept;

  // Called as f enters, and as it leaves.
  void begin(const fiber& f) noexcept;
  void end(fiber& f) noexcept;

  bool under_way() const noexcept { return began_ != 0; }

 private:
  nanos began_ = 0;          // 0: none is under way
  bool first_turn_ = false;  // of the fiber on trial
  std::uint32_t until_draw_ = 1;
  short_turns& kinds_;
  random& dice_;
};

}  // namespace VIGIL_DETAIL
