#include "inspect/own_frames.hpp"

#include <unwind.h>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

struct frames_wanted {
  frame_list& into;
  unsigned most;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* at, void* argument) {
  const auto& [out, most] = *static_cast<frames_wanted*>(argument);
  int is_before = 0;
  const std::uintptr_t place = ::_Unwind_GetIPInfo(at, &is_before);
  if (place == 0) return _URC_END_OF_STACK;
  if (out.count == most) {
    out.result = frames_result::more_above;
    return _URC_END_OF_STACK;
  }
  out.places[out.count++] = is_before != 0 ? place : place - 1;
  return _URC_NO_REASON;
}

}  // namespace

[[gnu::noinline]] void read_own_frames(frame_list& out, unsigned most) noexcept {
  out.result = frames_result::whole;
  frames_wanted wanted{out, most};
  ::_Unwind_Backtrace(&add_frame, &wanted);
}

}  // namespace vigil::inline VIGIL_ABI::detail
