// The size of a huge page where small ones have 4 KiB.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

inline constexpr std::size_t huge_page = std::size_t{2} << 20;

}  // namespace VIGIL_DETAIL
