// short_turns: the kinds of fibers whose first turn has been short of late. A kind is a
// type of function, so a function that is spawned again and again is known although each
// fiber is new. A hint: it decides on which worker a fiber runs, nothing else.
// (docs/decisions/0014)
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"

#include <vigil/detail/fiber_core.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class short_turns {
 public:
  static constexpr nanos limit = 50'000;     // shorter than this: no computation
  static constexpr std::uint8_t enough = 4;  // this many in a row are believed

  void add(const body_table* kind, bool is_short) noexcept {
    atomic<std::uintptr_t>& entry = entry_of(kind);
    const auto key = reinterpret_cast<std::uintptr_t>(kind);
    const std::uintptr_t seen = entry.load(order::relaxed);  // ordering: a hint
    std::uintptr_t count = (seen & ~low_bits) == key ? seen & low_bits : 0;
    if (!is_short) {
      count = 0;
    } else if (count < enough) {
      ++count;
    }
    entry.store(key | count, order::relaxed);  // ordering: a hint
  }

  bool are_short(const body_table* kind) const noexcept {
    // ordering: a hint.
    return entry_of(kind).load(order::relaxed) == (reinterpret_cast<std::uintptr_t>(kind) | enough);
  }

 private:
  static constexpr std::size_t entries = 64;
  static constexpr std::uintptr_t low_bits = 7;
  static_assert(alignof(body_table) > low_bits && enough <= low_bits);

  static std::size_t place_of(const body_table* kind) noexcept {
    return (reinterpret_cast<std::uintptr_t>(kind) / sizeof(body_table)) % entries;
  }

  atomic<std::uintptr_t>& entry_of(const body_table* kind) noexcept {
    return table_[place_of(kind)];
  }

  const atomic<std::uintptr_t>& entry_of(const body_table* kind) const noexcept {
    return table_[place_of(kind)];
  }

  atomic<std::uintptr_t> table_[entries] = {};
};

}  // namespace VIGIL_DETAIL
