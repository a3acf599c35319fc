#include "base/lock_rank.hpp"

#ifndef NDEBUG

#include "base/assert.hpp"

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// A bit for each rank held. It never crosses a switch, since no lock does.
thread_local unsigned held = 0;

}  // namespace

__attribute__((noinline)) void lock_taken(lock_rank rank) noexcept {
  const unsigned bit = 1u << static_cast<unsigned>(rank);
  if (held >= bit)
    fatal("lock order broken: rank %u taken while holding %#x", static_cast<unsigned>(rank), held);
  held |= bit;
}

__attribute__((noinline)) void lock_taken_beside(lock_rank rank) noexcept {
  const unsigned bit = 1u << static_cast<unsigned>(rank);
  if (held >= 2 * bit)
    fatal("lock order broken: rank %u taken while holding %#x", static_cast<unsigned>(rank), held);
  held |= bit;
}

__attribute__((noinline)) void lock_released(lock_rank rank) noexcept {
  held &= ~(1u << static_cast<unsigned>(rank));
}

}  // namespace vigil::inline VIGIL_ABI::detail

#endif
