// Switches shared by the public headers.
#pragma once

// Marks what the library exports.
#define VIGIL_API __attribute__((visibility("default")))

// The ABI version is part of every mangled name.
#define VIGIL_ABI v0

namespace vigil {
inline namespace VIGIL_ABI {}
}  // namespace vigil
