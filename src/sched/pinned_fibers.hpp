// pinned_fibers: the fibers that are pinned to one worker, the main fiber included:
// how many there are, how they wait, and what that lets their worker run besides.
//
// The danger. No other worker can run a pinned fiber. When it becomes ready it waits for
// the end of the turn that its worker is in: for ever, if that turn is a computation.
//
// The rule (docs/decisions/0014). While another worker is idle, the worker of a pinned
// fiber leaves everything that is not pinned to that one; the exception is a short
// turn (turn_trials) while the one pinned fiber waits without a deadline. It takes the
// rest itself, for one look around, if nobody else would: takes_all().
//
// Invariants
//   - open_ <= count_, and open_ is the number of pinned fibers whose waits.open is set.
//   - While count_ is 1, last_wait_ is how that fiber waits; `bounded`, if unknown.
//   - A lone worker counts none: there is no other to which it could leave anything.
//
// The owner's thread alone uses it, except that the main fiber is added before its
// worker runs. No lock.
#pragma once

#include "sched/fiber/fiber.hpp"
#include "sched/idle.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class pinned_fibers {
 public:
  pinned_fibers(bool lone, const idle_workers& idle) noexcept : lone_(lone), idle_(idle) {}

  // Count one more fiber that is pinned here; count f out.
  void add() noexcept;
  void remove(fiber& f) noexcept;

  bool any() const noexcept { return count_ != 0; }

  // For the sleeper of the worker.
  ties how_tied() const noexcept {
    if (!any()) return ties::none;
    return open_ == count_ ? ties::open : ties::bounded;
  }

  // Notes until when f, which leaves its stack, is away; nothing if it is not pinned.
  // `parks`: it waits, and neither yields nor ends.
  void note_wait(fiber& f, bool parks) noexcept;

  // Whether there is exactly one, and it waits without a deadline.
  bool one_waits() const noexcept { return count_ == 1 && last_wait_ != wait::bounded; }

  // Whether that one joins a fiber: then any turn may be the one that it waits for.
  // Caller: one_waits() is true.
  bool one_joins() const noexcept { return last_wait_ == wait::join; }

  // Whether fibers that are not pinned here are left to another worker, which is idle.
  // `is_looking`: the owner itself is counted among the workers that look.
  bool leaves_to_others(bool is_looking) const noexcept {
    return any() && !takes_all_ && idle_.others_rest(is_looking);
  }

  // Sets whether the owner takes all, since no other worker would take what is left to
  // others; set back to false after one look around.
  void takes_all(bool all) noexcept { takes_all_ = all; }

 private:
  enum class wait : std::uint8_t {
    bounded,  // it has a deadline, may be cancelled, or is not known
    open,
    join,
  };

  static wait wait_of(fiber& f, bool parks) noexcept;

  const bool lone_;
  bool takes_all_ = false;
  wait last_wait_ = wait::bounded;
  unsigned count_ = 0;
  unsigned open_ = 0;  // of them, those whose last wait had no deadline
  const idle_workers& idle_;
};

}  // namespace VIGIL_DETAIL
