// name_in: the name of an enumerator, for a reader.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// The names are in the order of the enumerators, which count up from 0; "?" beyond Last.
template <auto Last, std::size_t N>
constexpr const char* name_in(const char* const (&names)[N], decltype(Last) e) noexcept {
  static_assert(N == static_cast<std::size_t>(Last) + 1, "each enumerator has one name");
  const auto i = static_cast<std::size_t>(e);
  return i < N ? names[i] : "?";
}

}  // namespace VIGIL_DETAIL
