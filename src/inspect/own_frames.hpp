// own_frames: the frames of the caller, by the unwinder of the compiler's own library, which
// may take locks.
#pragma once

#include "inspect/frame_list.hpp"

#include <vigil/detail/config.hpp>

namespace vigil::inline VIGIL_ABI::detail {

// The innermost `most`, from the caller's own on.
VIGIL_FOR_IO void read_own_frames(frame_list& out, unsigned most = frame_list::most) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
