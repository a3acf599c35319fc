// Switches shared by the public headers. Each of them includes this file first.
#pragma once

#if __cplusplus < 202002L
// A name that cannot be found: unlike #error it ends the compiler's work here, so
// that this is its one message.
#include <vigil needs -std=c++20>
#endif

// Marks what the library exports. Only a shared library does (VIGIL_SHARED stands in
// its users' flags): what links the static ones exports nothing of them.
#if defined(VIGIL_SHARED)
#define VIGIL_API [[gnu::visibility("default")]]
#else
#define VIGIL_API
#endif

// Marks internals of vigil that the libraries vigil-io and vigil-tls use: exported
// as well, but not for other users.
#define VIGIL_FOR_IO VIGIL_API

// The ABI version is part of every mangled name.
#define VIGIL_ABI v0

namespace vigil::inline VIGIL_ABI {}
