#include <vigil/version.hpp>

// VIGIL_VERSION has two digits for each.
static_assert(VIGIL_VERSION_MINOR < 100 && VIGIL_VERSION_PATCH < 100);

#define VIGIL_TEXT_OF(x) #x
#define VIGIL_TEXT(x) VIGIL_TEXT_OF(x)

namespace VIGIL_PUBLIC {

int version() noexcept {
  return VIGIL_VERSION;
}

const char* version_string() noexcept {
  return VIGIL_TEXT(VIGIL_VERSION_MAJOR) "." VIGIL_TEXT(VIGIL_VERSION_MINOR) "." VIGIL_TEXT(
      VIGIL_VERSION_PATCH);
}

}  // namespace VIGIL_PUBLIC
