#include "core/base/lock_rank.hpp"

#ifndef NDEBUG

#include "core/base/assert.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {
namespace {

// A bit for each rank held. It never crosses a switch, since no lock does.
thread_local std::uint64_t held = 0;
static_assert(static_cast<unsigned>(lock_rank::last) < 63);

constexpr std::uint64_t bit_of(lock_rank rank) noexcept {
  return std::uint64_t{1} << static_cast<unsigned>(rank);
}

[[noreturn]] void broken_by(lock_rank rank) noexcept {
  fatal("lock order broken: rank %u taken while holding %#llx",
        static_cast<unsigned>(rank),
        static_cast<unsigned long long>(held));
}

}  // namespace

__attribute__((noinline)) void lock_taken(lock_rank rank) noexcept {
  if (held >= bit_of(rank)) broken_by(rank);
  held |= bit_of(rank);
}

__attribute__((noinline)) void lock_taken_beside(lock_rank rank) noexcept {
  if (held >= 2 * bit_of(rank)) broken_by(rank);
  held |= bit_of(rank);
}

__attribute__((noinline)) void lock_released(lock_rank rank) noexcept {
  held &= ~bit_of(rank);
}

}  // namespace VIGIL_DETAIL

#endif
