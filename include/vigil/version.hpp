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
// of the headers; they may differ in the patch number. A runtime that is made with the
// headers of a later minor version, or of one with another ABI, ends the program with a
// message. Thread safety: any thread. Lifetime: one number as long as the library is
// loaded. Shutdown: the same before, during and after a run. Cost: a constant. Go:
// runtime.Version.
VIGIL_API int version() noexcept;

// version() as a text, such as "0.2.3". Thread safety: any thread. Lifetime: as long as
// the library is loaded. Shutdown: the same before, during and after a run. Cost: a
// constant.
VIGIL_API const char* version_string() noexcept;

namespace detail {

// Carries the version of the headers that a program was compiled with into the library.
// It is the first member of `options`, so a library of any version finds it.
class header_mark {
 public:
  static constexpr unsigned known = 0x7669'6769;  // earlier headers have something else here

  // Inlined where a file writes options{...}, so that the file's own version is stored.
  // Without optimization `options o;` may call a constructor of `options`, of which the
  // linker keeps one for all files.
  [[gnu::always_inline]] constexpr header_mark() noexcept
      : known_(known), version_(VIGIL_VERSION) {}

  // The version, or 0 for headers without a mark.
  constexpr int version() const noexcept { return known_ == known ? version_ : 0; }

 private:
  unsigned known_;
  int version_;
};

}  // namespace detail

}  // namespace VIGIL_PUBLIC
