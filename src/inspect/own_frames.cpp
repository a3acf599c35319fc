#include "inspect/own_frames.hpp"

#include <unwind.h>

namespace VIGIL_DETAIL {
namespace {

struct frames_wanted {
  frame_list& into;
  unsigned most;
  std::uintptr_t from;  // 0: has come
};

_Unwind_Reason_Code add_frame(_Unwind_Context* at, void* argument) {
  auto& wanted = *static_cast<frames_wanted*>(argument);
  int is_before = 0;
  const std::uintptr_t place = ::_Unwind_GetIPInfo(at, &is_before);
  if (place == 0) return _URC_END_OF_STACK;
  if (wanted.from != 0 && wanted.from != place) return _URC_NO_REASON;
  wanted.from = 0;
  frame_list& out = wanted.into;
  if (out.count == wanted.most) {
    out.result = frames_result::more_above;
    return _URC_END_OF_STACK;
  }
  out.places[out.count++] = is_before != 0 ? place : place - 1;
  return _URC_NO_REASON;
}

void read(frames_wanted wanted) noexcept {
  wanted.into.count = 0;
  wanted.into.result = frames_result::whole;
  ::_Unwind_Backtrace(&add_frame, &wanted);
}

}  // namespace

[[gnu::noinline]] void read_own_frames(frame_list& out) noexcept {
  read({out, frame_list::most, 0});
}

[[gnu::noinline]] void read_frames_from(void* return_address,
                                        unsigned most,
                                        frame_list& out) noexcept {
  read({out, most, reinterpret_cast<std::uintptr_t>(return_address)});
  if (out.count == 0) read({out, most, 0});
}

}  // namespace VIGIL_DETAIL
