// seeded_order: which fiber goes next on virtual time. Everything that can run is
// in one bag, and the seed draws; due callbacks are one lot in it.
//
// A fiber that yielded joins the bag again after as many turns as there were
// fibers in it: those go first, and later ones cannot keep it waiting.
//
// All of it is done by the one worker's thread. Making a fiber ready cannot fail:
// without memory for a larger bag the fibers that do not fit stay in the queues,
// which need none, until some of the others have run.
#pragma once

#include "base/random.hpp"
#include "sched/fiber/fiber.hpp"

#include <cstddef>
#include <vector>

namespace vigil::inline VIGIL_ABI::detail {

class timer_seam;

class seeded_order {
 public:
  explicit seeded_order(random& dice) : dice_(dice) {
    bag_.reserve(64);  // never without room: has_room()
  }

  // Caller: has asked has_room().
  void add(fiber& f) noexcept { bag_.push_back(&f); }

  bool has_room() noexcept;

  void add_yielded(fiber& f) noexcept;

  bool empty() const noexcept { return bag_.empty() && yielded_.empty(); }

  // Null if nothing is there, or no stack for the callbacks.
  fiber* draw(timer_seam& timers) noexcept;

 private:
  void take_back_yielded() noexcept;

  random& dice_;
  std::vector<fiber*> bag_;
  fiber_chain yielded_;
  std::size_t before_yielded_ = 0;
};

}  // namespace vigil::inline VIGIL_ABI::detail
