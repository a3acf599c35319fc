#include "inspect_page/recording.hpp"

namespace vigil::inline VIGIL_ABI::detail {

bool has_recorder() noexcept {
  return false;
}

void write_recording(std::FILE*, std::chrono::nanoseconds) {}

}  // namespace vigil::inline VIGIL_ABI::detail
