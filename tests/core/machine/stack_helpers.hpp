// Helpers that the tests of stacks share.
#pragma once

#include "core/machine/sanitizer.hpp"
#include "core/machine/stack.hpp"
#include "core/machine/stack_pool.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace vigil::testing_support {

inline constexpr bool has_sanitizer = VIGIL_ASAN || VIGIL_TSAN;
inline constexpr std::size_t page = 4096;

inline void touch(const detail::stack& s) {
  *(s.top - 1) = std::byte{1};
}

// While it exists, a step of the decay takes so long.
class decay_step {
 public:
  explicit decay_step(detail::nanos length) { detail::process_stacks.set_step(length); }

  ~decay_step() { detail::process_stacks.set_step(detail::stack_decay{}.step); }

  decay_step(const decay_step&) = delete;
  decay_step& operator=(const decay_step&) = delete;
};

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
