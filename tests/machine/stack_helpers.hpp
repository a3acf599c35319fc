// Helpers that the tests of stacks share.
#pragma once

#include "machine/sanitizer.hpp"
#include "machine/stack.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace vigil::testing_support {

inline constexpr bool has_sanitizer = VIGIL_ASAN || VIGIL_TSAN;
inline constexpr std::size_t page = 4096;

inline void touch(const detail::stack& s) {
  *(s.top - 1) = std::byte{1};
}

// Takes stacks until none are left, or until it has taken `most`.
inline std::vector<detail::stack> take_all(std::size_t usable,
                                           std::size_t most,
                                           std::string& error) {
  std::vector<detail::stack> taken;
  taken.reserve(most);
  try {
    while (taken.size() < most)
      taken.push_back(detail::allocate_stack(usable));
  } catch (const detail::stack_error& e) {
    error = e.what();
  }
  return taken;
}

}  // namespace vigil::testing_support
