// The version of vigil. meson.build and CMakeLists.txt read it from these three lines.
#pragma once

#include <vigil/detail/config.hpp>

#define VIGIL_VERSION_MAJOR 0
#define VIGIL_VERSION_MINOR 2
#define VIGIL_VERSION_PATCH 0

// The version as one number, for #if: 203 is 0.2.3, and 10405 is 1.4.5.
#define VIGIL_VERSION \
  (VIGIL_VERSION_MAJOR * 10000 + VIGIL_VERSION_MINOR * 100 + VIGIL_VERSION_PATCH)

namespace VIGIL_PUBLIC {

// The version of the library that the program has loaded or linked. VIGIL_VERSION is that
// of the headers.
VIGIL_API int version() noexcept;

// The same as a text, such as "0.2.3".
VIGIL_API const char* version_string() noexcept;

}  // namespace VIGIL_PUBLIC
