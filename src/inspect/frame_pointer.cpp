// A place can be the frame of a function if
//
// FP1 the word above it is a return address, right after a call of this function or
//     after one by way of a register or memory, and
// FP2 the frames from there on lead to the bottom of the stack.
//
// A function that calls itself has several such places, and all lie on the way from the
// innermost one. One that does not lie there is the remains of an earlier call, or the
// others are: none is chosen then.
#include "inspect/frame_pointer.hpp"

#include "core/base/foreign_memory.hpp"

#include <cstring>
#include <iterator>

namespace VIGIL_DETAIL {

#if defined(__x86_64__)
namespace {

constexpr unsigned frame_pointer_register = 6;
constexpr std::uintptr_t word_size = sizeof(std::uintptr_t);
constexpr std::uintptr_t pushed = 2 * word_size;  // the return address and the register
constexpr std::uintptr_t call_alignment = 16;     // of the stack at each call, by the ABI

bool read_code(std::uintptr_t at, void* to, std::size_t size) noexcept {
  return read_loaded(reinterpret_cast<const void*>(at), to, size);
}

std::uintptr_t relative(std::uintptr_t after, const std::uint8_t* offset) noexcept {
  std::int32_t n = 0;
  std::memcpy(&n, offset, sizeof n);
  return after + static_cast<std::uintptr_t>(std::intptr_t{n});
}

// The function that a call of `target` gets to: the linker's tables of calls jump on.
std::uintptr_t jumps_to(std::uintptr_t target) noexcept {
  constexpr std::uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  std::uint8_t code[16];
  if (!read_code(target, code, sizeof code)) return target;
  std::size_t at = std::memcmp(code, endbr64, sizeof endbr64) == 0 ? sizeof endbr64 : 0;
  if (code[at] == 0xf2) ++at;
  if (code[at] != 0xff || code[at + 1] != 0x25) return target;
  const std::uintptr_t slot = relative(target + at + 6, code + at + 2);
  std::uintptr_t to = 0;
  return read_code(slot, &to, sizeof to) ? to : target;
}

// FP1
bool returns_from(std::uintptr_t place, std::uintptr_t function, known_rules& known) noexcept {
  const frame_rules* rules = nullptr;
  if (place == 0 || known.find(place - 1, rules) != rules_result::found) return false;
  std::uint8_t code[7];
  if (!read_code(place - sizeof code, code, sizeof code)) return false;
  if (code[2] == 0xe8) {
    const std::uintptr_t target = relative(place, code + 3);
    if (target == function || jumps_to(target) == function) return true;
  }
  // ff /2, of two to seven bytes: with no byte for a second register and no offset, up to
  // both.
  constexpr auto is_call = [](const std::uint8_t* at) {
    return at[0] == 0xff && (at[1] >> 3 & 7) == 2;
  };
  const auto length = [&code](const std::uint8_t* at) -> std::size_t {
    const unsigned mode = at[1] >> 6;
    const unsigned base = at[1] & 7;
    if (mode == 3) return 2;
    const std::size_t scaled = base == 4 ? 1 : 0;
    if (at + 2 + scaled > std::end(code)) return 0;  // its second byte is no part of the call
    const bool is_wide =
        mode == 2 || (mode == 0 && (base == 5 || (scaled == 1 && (at[2] & 7) == 5)));
    return 2 + scaled + (is_wide ? 4 : mode == 1 ? 1 : 0);
  };
  for (std::size_t n = 2; n <= sizeof code; ++n) {
    const std::uint8_t* const at = code + sizeof code - n;
    if (is_call(at) && length(at) == n) return true;
  }
  return false;
}

frame with_pointer(const frame& f, std::uintptr_t at) noexcept {
  frame g = f;
  g.registers.set(frame_pointer_register, at);
  return g;
}

// A stack has no more frames than words. Those of signals may lead down again, so in a
// damaged stack they may go round.
std::size_t most_frames(const stack_copy& stack) noexcept {
  return (stack.end - stack.begin) / word_size;
}

// Whether the frames from f on pass this stack pointer.
bool passes(frame f, std::uintptr_t sp, const stack_copy& stack, known_rules& known) noexcept {
  for (std::size_t n = most_frames(stack); n > 0; --n) {
    if (step(f, stack, known) != step_result::caller) return false;
    if (f.registers[stack_pointer_register] == sp) return true;
  }
  return false;
}

// FP2
bool leads_to_bottom(frame f, const stack_copy& stack, known_rules& known) noexcept {
  auto r = step_result::caller;
  for (std::size_t n = most_frames(stack); n > 0 && r == step_result::caller; --n)
    r = step(f, stack, known);
  return r == step_result::bottom;
}

}  // namespace

bool find_frame_pointer(frame& f, const stack_copy& stack, known_rules& known) noexcept {
  const frame_rules* rules = nullptr;
  if (known.find(f.is_call ? f.place - 1 : f.place, rules) != rules_result::found) return false;
  const register_rule& saved = rules->rules[frame_pointer_register];
  if (rules->has_cfa_expression || rules->cfa_register != frame_pointer_register ||
      rules->cfa_offset != std::int64_t{pushed} || saved.how != register_rule::kind::at_offset ||
      saved.number != -std::int64_t{pushed}) {
    return false;
  }
  const std::uintptr_t function = rules->function;
  std::uintptr_t at = f.registers[stack_pointer_register];
  std::uintptr_t found = 0;
  for (at += -at % call_alignment; at < stack.end; at += call_alignment) {
    std::uintptr_t place = 0;
    if (!stack.read(at + word_size, place)) break;
    if (place - stack.begin < stack.end - stack.begin) continue;
    if (!returns_from(place, function, known)) continue;
    if (!leads_to_bottom(with_pointer(f, at), stack, known)) continue;
    if (found == 0) {
      found = at;
    } else if (!passes(with_pointer(f, found), at + pushed, stack, known)) {
      return false;
    }
  }
  if (found == 0) return false;
  f = with_pointer(f, found);
  return true;
}

#else

bool find_frame_pointer(frame&, const stack_copy&, known_rules&) noexcept {
  return false;
}

#endif

}  // namespace VIGIL_DETAIL
