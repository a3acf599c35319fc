// Switches shared by the public headers. Each of them includes this file first.
#pragma once

#if __cplusplus < 202002L
// A name that cannot be found: unlike #error it ends the compiler's work here, so
// that this is its one message.
#include <vigil needs -std=c++20>
#endif

// Marks what the library exports.
#define VIGIL_API [[gnu::visibility("default")]]

// The ABI version is part of every mangled name.
#define VIGIL_ABI v0

namespace vigil {
inline namespace VIGIL_ABI {}
}  // namespace vigil
