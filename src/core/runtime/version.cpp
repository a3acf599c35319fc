#include "core/base/assert.hpp"
#include "core/runtime/runtime_core.hpp"

#include <vigil/version.hpp>

#include <cstdio>

// VIGIL_VERSION has two digits for each.
static_assert(VIGIL_VERSION_MINOR < 100 && VIGIL_VERSION_PATCH < 100);

#define VIGIL_TEXT_OF(x) #x
#define VIGIL_TEXT(x) VIGIL_TEXT_OF(x)

namespace VIGIL_PUBLIC {

namespace detail {
namespace {

// The first version with this ABI (VIGIL_ABI), with which it grows.
constexpr int first_of_abi = 200;

// Two versions without their patch numbers are compared: a patch adds no name.
bool fits(int headers) noexcept {
  return headers >= first_of_abi && headers / 100 <= VIGIL_VERSION / 100;
}

}  // namespace

void refuse_other_headers(const options& settings) noexcept {
  const int headers = settings.made_with.version();
  if (fits(headers)) return;
  char from[48] = "a version before 0.2";
  if (headers != 0) {
    std::snprintf(
        from, sizeof from, "%d.%d.%d", headers / 10000, headers / 100 % 100, headers % 100);
  }
  fatal(
      "this program has the headers of vigil %s and the library of vigil %s, which do not fit: "
      "options have another layout, or the library lacks what the headers call. Compile all of the "
      "program with the headers of this library, or give it the library of these headers. "
      "`pkg-config --modversion vigil` and CMake's vigil_VERSION tell what a build takes, and ldd "
      "which shared library a program loads",
      from,
      version_string());
}

}  // namespace detail

int version() noexcept {
  return VIGIL_VERSION;
}

const char* version_string() noexcept {
  return VIGIL_TEXT(VIGIL_VERSION_MAJOR) "." VIGIL_TEXT(VIGIL_VERSION_MINOR) "." VIGIL_TEXT(
      VIGIL_VERSION_PATCH);
}

}  // namespace VIGIL_PUBLIC
