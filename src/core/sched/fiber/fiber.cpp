#include "core/sched/fiber/fiber.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

fiber_core::fiber_core(scheduler& owner,
                       const stack& where,
                       std::string_view given_name,
                       const site& from) noexcept
    : sched(&owner), identity(from), own_stack(where) {
  set_name(given_name);
  magic.store(live_magic, order::release);  // ordering: the dump sees the rest, or does not look
}

fiber_core::~fiber_core() {
  magic.store(0, order::relaxed);  // ordering: as above
}

void fiber_core::set_name(std::string_view text) noexcept {
  const std::size_t n = std::min(text.size(), sizeof identity.name - 1);
  if (n != 0) std::copy_n(text.data(), n, identity.name);  // most have none: no call
  identity.name[n] = '\0';
}

void fiber_core::destroy_locals() noexcept {
  constexpr int rounds = 4;  // PTHREAD_DESTRUCTOR_ITERATIONS
  for (int round = 0; round < rounds && locals != nullptr; ++round) {
    // A value made meanwhile goes to the front, and is destroyed in the next round.
    fiber_local_slot* slot = locals;
    while (slot != nullptr) {
      fiber_local_slot** at = &locals;
      while (*at != slot)
        at = &(*at)->next;
      *at = slot->next;
      slot->destroy(slot->value);
      fiber_local_slot* const following = slot->next;
      delete slot;
      slot = following;
    }
  }
  // The destructors make each other's values for ever: the values left are not destroyed.
  while (fiber_local_slot* const slot = locals) {
    locals = slot->next;
    delete slot;
  }
}

void fiber_core::end_guards() noexcept {
  if ((guards.shields | guards.no_parks | guards.pins) == 0) return;
  ++guards.ended;
  guards.shields = 0;
  guards.no_parks = 0;
  guards.pins = 0;
  pinned = nullptr;
}

}  // namespace VIGIL_DETAIL
