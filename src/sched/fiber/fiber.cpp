#include "sched/fiber/fiber.hpp"

#include "sched/scheduler.hpp"

#include <algorithm>

namespace vigil::inline VIGIL_ABI::detail {

fiber_core::fiber_core(detail::scheduler& owner,
                       const detail::stack& where,
                       std::string_view given_name,
                       const site& from) noexcept
    : sched(&owner), whole(where), file(from.file), line(from.line) {
  set_name(given_name);
  magic.store(live_magic, detail::release);  // ordering: the dump sees the rest, or does not look
}

fiber_core::~fiber_core() {
  magic.store(0, detail::relaxed);  // ordering: as above
}

void fiber_core::set_name(std::string_view text) noexcept {
  const std::size_t n = std::min(text.size(), name_room - 1);
  if (n != 0) std::copy_n(text.data(), n, name);  // most have none: no call
  name[n] = '\0';
}

void fiber_core::destroy_locals() noexcept {
  constexpr int rounds = 4;  // PTHREAD_DESTRUCTOR_ITERATIONS
  for (int round = 0; round < rounds && locals != nullptr; ++round) {
    // A value that is made meanwhile goes in front, and has its turn in the next round.
    detail::fiber_local_slot* slot = locals;
    while (slot != nullptr) {
      detail::fiber_local_slot** at = &locals;
      while (*at != slot)
        at = &(*at)->next;
      *at = slot->next;
      slot->destroy(slot->value);
      detail::fiber_local_slot* const following = slot->next;
      delete slot;
      slot = following;
    }
  }
  // Their destructors make each other's values for ever: these stay as they are.
  while (detail::fiber_local_slot* const slot = locals) {
    locals = slot->next;
    delete slot;
  }
}

void fiber_core::end_guards() noexcept {
  if ((shields | no_parks | pins) == 0) return;
  ++guards_ended;
  shields = 0;
  no_parks = 0;
  if (pins != 0) pinned->lets_go(*this);
  pins = 0;
  pinned = nullptr;
}

}  // namespace vigil::inline VIGIL_ABI::detail
