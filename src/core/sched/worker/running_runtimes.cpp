#include "core/sched/worker/running_runtimes.hpp"

namespace VIGIL_DETAIL {

slot_block first_slots;
atomic<int> handlers_inside{0};

std::mutex process_lock;
atomic<std::size_t> runtimes_running{0};
atomic<bool> runtime_was_made{false};

runtime_slot* slot_with(const scheduler* s) noexcept {
  return find_slot([s](const runtime_slot& slot) { return slot.running.load() == s; });
}

runtime_slot& free_slot() {
  if (runtime_slot* const found = slot_with(nullptr)) return *found;
  auto* const more = new slot_block;
  slot_block* last = &first_slots;
  while (slot_block* const b = last->next.load())
    last = b;
  last->next.store(more);
  return more->slots[0];
}

}  // namespace VIGIL_DETAIL
