// shown_object: the object of a wait for I/O, as dumps read it: an odd number for a
// descriptor of the kernel's, or the place where a stream in memory was made. nullptr if
// it is not known. A number that leaves 2 when divided by 4 is 2 more than the address at
// which one of these lies, and may change.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/io/detail/config.hpp>

#include <cstdint>
#include <type_traits>

namespace VIGIL_IO_DETAIL {

inline const void* shown_descriptor(int descriptor) noexcept {
  if (descriptor < 0) return nullptr;
  return reinterpret_cast<const void*>((static_cast<std::uintptr_t>(descriptor) << 1) | 1);
}

// That of an object of Asio's that has a descriptor, or of a stream over one.
template <class Object>
const void* shown_object(Object& o) noexcept {
  if constexpr (requires {
                  requires std::is_same_v<std::decay_t<decltype(o.native_handle())>, int>;
                }) {
    return shown_descriptor(o.native_handle());
  } else if constexpr (requires {
                         requires !std::is_same_v<decltype(o.lowest_layer()), Object&>;
                       }) {
    return shown_object(o.lowest_layer());
  } else {
    return nullptr;
  }
}

}  // namespace VIGIL_IO_DETAIL
