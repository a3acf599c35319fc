// Switches of the public headers, each of which includes this file first.
#pragma once

#if __cplusplus < 202002L
// There is no such header. Unlike #error, this ends the compilation here, so that it is
// the only message.
#include <vigil needs -std=c++20>
#endif

// Marks the symbols that the shared library exports (its users are built with
// VIGIL_SHARED). A program that links the static libraries exports none of them.
#if defined(VIGIL_SHARED)
#define VIGIL_API [[gnu::visibility("default")]]
#else
#define VIGIL_API
#endif

// Marks internals of vigil that its other libraries use: exported as well, but not for
// other users.
#define VIGIL_FOR_IO VIGIL_API

// The number of the ABI is part of every mangled name and of the sonames, for which
// meson.build and CMakeLists.txt read it here. It grows by the rules of
// docs/decisions/0029-versions-and-the-abi.md, and first_of_abi in version.cpp with it.
#define VIGIL_ABI v0

// The namespaces, each as one word: tools that do not preprocess, such as ctags, take no
// `inline` in a nested one, and would see nothing of what is inside.
#define VIGIL_PUBLIC vigil::inline VIGIL_ABI
#define VIGIL_DETAIL VIGIL_PUBLIC::detail
#define VIGIL_IO vigil::io::inline VIGIL_ABI
#define VIGIL_IO_DETAIL VIGIL_IO::detail

namespace VIGIL_DETAIL {

// False in a library that is built without the flight recorder, and for its users: then
// nothing is left of it.
#if defined(VIGIL_WITHOUT_RECORDER)
inline constexpr bool recorder_is_built = false;
#else
inline constexpr bool recorder_is_built = true;
#endif

}  // namespace VIGIL_DETAIL
