// perfetto_trace: recordings as a file that Perfetto's viewer reads.
#pragma once

#include "inspect/recording.hpp"

#include <vigil/detail/config.hpp>

#include <string>
#include <vector>

namespace VIGIL_DETAIL {

// Throws std::bad_alloc.
std::string to_perfetto(const std::vector<recording>& all);

}  // namespace VIGIL_DETAIL
