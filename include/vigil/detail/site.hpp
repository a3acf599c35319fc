// The place in the caller's source where a fiber or a timer was made.
// std::source_location would do, but clang 14 has none with libstdc++ 12, and this is
// lighter.
#pragma once

#include <vigil/detail/config.hpp>

namespace vigil::inline VIGIL_ABI {

struct site {
  const char* file;
  unsigned line;

  // As a default argument it names the line of the outermost call.
  static constexpr site current(const char* file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

}  // namespace vigil::inline VIGIL_ABI
