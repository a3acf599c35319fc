// seen_pairs: the pairs of places that have been reported. Any thread.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

// Returns a number for the frames of a stack.
inline std::uint64_t hash_of(const std::uintptr_t* places, unsigned count) noexcept {
  std::uint64_t h = count;
  for (unsigned i = 0; i < count; ++i)
    h = (h ^ places[i]) * 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
  return h ^ h >> 32;
}

class seen_pairs {
 public:
  // True for the first call with this pair; false as well if there is no room for more.
  bool add(std::uint64_t first, std::uint64_t second) noexcept {
    const std::uint64_t pair = (first ^ (second << 1 | second >> 63)) | 1;
    for (unsigned i = 0; i < room; ++i) {
      std::uint64_t there = 0;
      // ordering: the word alone says whether the pair is there.
      if (pairs_[(pair / 2 + i) % room].compare_exchange_strong(there, pair, order::relaxed))
        return true;
      if (there == pair) return false;
    }
    return false;
  }

 private:
  static constexpr unsigned room = 1024;

  atomic<std::uint64_t> pairs_[room]{};
};

}  // namespace VIGIL_DETAIL
