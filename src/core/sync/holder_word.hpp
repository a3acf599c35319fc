// holder_word: the holder of a lock, as note_holder() writes it: a fiber by its number
// and that of its runtime. Each runtime has numbers of its own, and a lock may outlive
// both.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

struct holder_word {
  static constexpr unsigned fiber_bits = 40;
  static constexpr std::uint64_t most_fibers = (std::uint64_t{1} << fiber_bits) - 1;

  // Bit 0 is clear; it is set for a thread.
  static constexpr std::uint64_t of(std::uint64_t runtime_number,
                                    std::uint64_t fiber_number) noexcept {
    return runtime_number << (fiber_bits + 1) | (fiber_number & most_fibers) << 1;
  }

  static constexpr bool is_thread(std::uint64_t word) noexcept { return (word & 1) != 0; }

  static constexpr std::uint64_t fiber_number(std::uint64_t word) noexcept {
    return word >> 1 & most_fibers;
  }

  // Whether the fiber is, or was, one of the runtime with this number.
  static constexpr bool is_of(std::uint64_t word, std::uint64_t runtime_number) noexcept {
    return word >> (fiber_bits + 1) == (runtime_number & ~std::uint64_t{0} >> (fiber_bits + 1));
  }
};

}  // namespace VIGIL_DETAIL
