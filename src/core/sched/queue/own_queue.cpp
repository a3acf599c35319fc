#include "core/sched/queue/own_queue.hpp"

namespace VIGIL_DETAIL {

// Moves half of the ring to the injection queue, with f behind. It wakes nobody: a caller
// that adds a fiber looks for a sleeper afterwards (IA2), and take_slot() adds none. Not
// inlined: its kilobyte would lie on the stack of each fiber that makes another one run.
[[gnu::noinline]] void own_queue::make_room(fiber& f) noexcept {
  fiber* moved[run_queue::capacity / 2];
  const std::uint32_t n = ring_.grab(moved, run_queue::capacity / 2);
  fiber_chain overflow;
  for (std::uint32_t i = 0; i < n; ++i)
    overflow.push_back(*moved[i]);
  overflow.push_back(f);
  overflow_.push(overflow);
}

fiber* own_queue::steal_from(own_queue& victim, std::uint32_t& n) noexcept {
  fiber* taken[run_queue::capacity / 2];
  n = victim.ring_.grab(taken, run_queue::capacity / 2);
  if (n != 0) {
    for (std::uint32_t i = 1; i < n; ++i)
      push_back(*taken[i]);
    return taken[0];
  }
  // Its owner most likely enters this one within a microsecond, with a warm cache:
  // wait a moment before taking it away.
  // ordering: a hint; the exchange below decides.
  fiber* const before = victim.next_.load(order::relaxed);
  if (before == nullptr) return nullptr;
  for (int i = 0; i < 40; ++i) {
    cpu_pause();
    if (victim.next_.load(order::relaxed) != before) return nullptr;  // ordering: a hint
  }
  // Pairs with the exchange in push_next().
  fiber* const f = victim.next_.exchange(nullptr, order::acq_rel);
  if (f != nullptr) n = 1;
  return f;
}

}  // namespace VIGIL_DETAIL
