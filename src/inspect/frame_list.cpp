#include "inspect/frame_list.hpp"

#include "core/base/thread_annotations.hpp"
#include "core/machine/left_frame.hpp"
#include "inspect/frame_pointer.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

const char* to_string(frames_result r) noexcept {
  switch (r) {
    case frames_result::whole:
      return "whole";
    case frames_result::more_above:
      return "more frames above";
    case frames_result::unknown_code:
      return "more frames above, behind code without call frame information";
    case frames_result::lost:
      return "more frames above, which cannot be followed out of a system call";
    case frames_result::not_begun:
      return "has not begun";
    case frames_result::moved_on:
      return "has moved on";
    case frames_result::other_stack:
      return "runs on another stack";
    case frames_result::no_answer:
      return "the thread that runs it has not answered";
    case frames_result::not_asked:
      return "runs: it is not asked";
    case frames_result::not_wanted:
      return "not wanted";
    case frames_result::has_ended:
      return "has ended";
    case frames_result::not_supported:
      return "frames cannot be read in this build";
  }
  return "?";
}

bool frame_list::operator==(const frame_list& other) const noexcept {
  return result == other.result && count == other.count &&
         std::equal(places, places + count, other.places);
}

void read_frames(frame innermost,
                 const stack_copy& from,
                 known_rules& known,
                 frame_list& out) noexcept {
  frame f = innermost;
  out.count = 0;
  for (;;) {
    if (out.count == frame_list::most) {
      out.result = frames_result::more_above;
      return;
    }
    out.places[out.count++] = f.is_call ? f.place - 1 : f.place;
    switch (step(f, from, known)) {
      case step_result::caller:
        break;
      case step_result::bottom:
        out.result = frames_result::whole;
        return;
      case step_result::lost:
        if (find_frame_pointer(f, from, known)) {
          --out.count;  // this frame once more
          break;
        }
        out.result = frames_result::lost;
        return;
      case step_result::not_in_copy:
        out.result = frames_result::more_above;
        return;
      case step_result::no_rules:
      case step_result::not_supported:
        out.result = frames_result::unknown_code;
        return;
    }
  }
}

VIGIL_NO_SANITIZE void copy_racing(const std::byte* from, std::byte* to, std::size_t n) noexcept {
  const volatile std::byte* const bytes = from;
  for (std::size_t i = 0; i < n; ++i)
    to[i] = bytes[i];
}

namespace {

#if VIGIL_OWN_JUMP

// The frame that called vigil_jump(), out of a stack that has been left.
bool innermost_frame(const stack_copy& copy, frame& out) noexcept {
  const auto set = [&](unsigned dwarf_register, std::size_t at) {
    std::uintptr_t word = 0;
    const bool is_there = copy.read(copy.begin + at, word);
    if (is_there) out.registers.set(dwarf_register, word);
    return is_there;
  };
  constexpr unsigned rbx = 3;
  constexpr unsigned rbp = 6;
  constexpr unsigned r12 = 12;
  const bool all = set(r12 + 3, offsetof(left_frame, r15)) &&
                   set(r12 + 2, offsetof(left_frame, r14)) &&
                   set(r12 + 1, offsetof(left_frame, r13)) && set(r12, offsetof(left_frame, r12)) &&
                   set(rbx, offsetof(left_frame, rbx)) && set(rbp, offsetof(left_frame, rbp)) &&
                   set(return_address_register, offsetof(left_frame, goes_on));
  if (!all) return false;
  out.registers.set(stack_pointer_register, copy.begin + sizeof(left_frame));
  out.place = out.registers[return_address_register];
  return true;
}

#else

bool innermost_frame(const stack_copy&, frame&) noexcept {
  return false;
}

#endif

}  // namespace

void read_parked_frames(const stack& where,
                        const fiber_view& s,
                        frames_room& room,
                        frame_list& out) noexcept {
  out.count = 0;
  out.result = frames_result::moved_on;
  const auto* const from = static_cast<const std::byte*>(s.resumes_at);
  const auto* const top = reinterpret_cast<const std::byte*>(control_block(where));
  if (s.state == fiber_state::ended) {
    out.result = frames_result::has_ended;
    return;
  }
  if (s.state == fiber_state::running || from < where.bottom || from >= top) return;
  const auto size = std::min(static_cast<std::size_t>(top - from), sizeof room.copy);
  copy_racing(from, room.copy, size);
  if (!is_unmoved(where, s)) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const stack_copy copy{begin, begin + size, room.copy};
  frame innermost;
  if (!innermost_frame(copy, innermost)) {
    out.result = frames_result::not_supported;
    return;
  }
  if (innermost.place == reinterpret_cast<std::uintptr_t>(&stack_begins)) {
    out.result = frames_result::not_begun;
    return;
  }
  read_frames(innermost, copy, room.known, out);
}

}  // namespace VIGIL_DETAIL
