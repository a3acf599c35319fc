// own_frames: the frames of the caller, by the unwinder of the compiler's own library,
// which may take locks.
#pragma once

#include "inspect/frame_list.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// From the caller's own on, at most 128.
VIGIL_FOR_IO void read_own_frames(frame_list& out) noexcept;

// From the one on to which a function returns at `return_address`, at most `most`. If
// there is none, from the caller's own.
VIGIL_FOR_IO void read_frames_from(void* return_address, unsigned most, frame_list& out) noexcept;

}  // namespace VIGIL_DETAIL
