// The place in the caller's source where a fiber, a timer or a channel was made.
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

namespace detail {

// The place where an object was made, kept inside the object: by it dumps name what a
// fiber waits for. It has no name without a place.
struct birth {
  constexpr birth(const site& from) noexcept : file(from.file), line(from.line) {}

  const char* file;
  unsigned line;
};

}  // namespace detail

}  // namespace vigil::inline VIGIL_ABI
