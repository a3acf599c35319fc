// seeded_order: which fiber goes next on virtual time. Everything that can run is in one
// bag, and the seed draws; the due callbacks together are one lot in it.
//
// A fiber that yielded joins the bag again after as many turns as there were fibers in
// it: those go first, and later ones cannot keep it waiting.
//
// The one worker's thread does all of it. Making a fiber ready cannot fail: without
// memory for a larger bag the fibers that do not fit stay in the queues, which need none,
// until some of the others have run.
#pragma once

#include "core/base/random.hpp"
#include "core/sched/fiber/fiber.hpp"

#include <cstddef>
#include <vector>

namespace VIGIL_DETAIL {

class injection_queue;
class timer_seam;

class seeded_order {
 public:
  explicit seeded_order(random& dice) : dice_(dice) {
    bag_.reserve(64);  // never without room: has_room()
  }

  // False if there is no memory for a larger bag: f is for a queue that needs none.
  bool add(fiber& f) noexcept;

  // Takes in the fibers of the other queues, as long as there is room.
  void take_in(injection_queue& injected, injection_queue& pinned) noexcept;

  void add_yielded(fiber& f) noexcept;

  bool empty() const noexcept { return bag_.empty() && yielded_.empty(); }

  // The next fiber; nullptr if there is none, or no stack for a runner of callbacks.
  fiber* draw(timer_seam& timers) noexcept;

 private:
  bool has_room() noexcept;
  void take_back_yielded() noexcept;

  random& dice_;
  std::vector<fiber*> bag_;
  fiber_chain yielded_;
  std::size_t before_yielded_ = 0;  // turns until those that yielded are in the bag again
};

}  // namespace VIGIL_DETAIL
