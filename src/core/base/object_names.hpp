// object_names: the names that users give to channels, locks and the like (named()).
//
// An object keeps the number of its name in bits that the line of its birth has left, so
// a name costs nothing where none is given. The table is for good: names are constants.
// Debuggers read it as well.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>

namespace VIGIL_DETAIL {

// Names have the numbers from 1. A prime, so that steps of any width visit all.
inline constexpr unsigned most_names = 1009;
static_assert(most_names < 1U << (32 - birth::line_bits));

struct name_table {
  atomic<const char*> names[most_names];
};

VIGIL_FOR_IO extern name_table object_names;

// Async-signal-safe. nullptr if there is none. The text may be gone with its library.
VIGIL_FOR_IO const char* name_by_number(unsigned number) noexcept;

}  // namespace VIGIL_DETAIL
