// perfetto_trace: recordings as a file that Perfetto's viewer reads.
#pragma once

#include "inspect/recording.hpp"

#include <vigil/detail/config.hpp>

#include <string>
#include <vector>

namespace vigil::inline VIGIL_ABI::detail {

// Throws std::bad_alloc.
std::string to_perfetto(const std::vector<recording>& all);

}  // namespace vigil::inline VIGIL_ABI::detail
