// frame_rules: where a function keeps the registers of its caller, at one place of its
// code, as call frame information (.eh_frame) says it. Compilers write that for
// exceptions, so it needs no frame pointers and exists for Debian's libraries as well.
//
// Reading allocates nothing, and takes no lock unless rules_need_a_lock:
// async-signal-safe.
#pragma once

#include "inspect/dwarf_reader.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

#include <dlfcn.h>

namespace vigil::inline VIGIL_ABI::detail {

// DWARF's numbers of the registers.
#if defined(__x86_64__)
inline constexpr unsigned frame_register_count = 17;
inline constexpr unsigned stack_pointer_register = 7;
inline constexpr unsigned return_address_register = 16;
#elif defined(__aarch64__)
inline constexpr unsigned frame_register_count = 32;
inline constexpr unsigned stack_pointer_register = 31;
inline constexpr unsigned return_address_register = 30;
#endif

// The canonical frame address (CFA) is the value of the stack pointer in the caller.
// Where the caller's value of a register is.
struct register_rule {
  enum class kind : std::uint8_t {
    same,
    undefined,
    at_offset,      // in memory, so far from the CFA
    is_offset,      // so far from the CFA
    in_register,    // in another one
    at_expression,  // in memory, at the expression's address
    is_expression,
  };

  kind how = kind::same;
  std::int64_t number = 0;  // an offset from the CFA, or a register
  dwarf_reader expression{nullptr, nullptr};
};

struct frame_rules {
  std::uint64_t cfa_register = stack_pointer_register;
  std::int64_t cfa_offset = 0;
  bool has_cfa_expression = false;
  dwarf_reader cfa_expression{nullptr, nullptr};
  register_rule rules[frame_register_count];
  std::uint64_t return_register = return_address_register;
  bool is_signal_frame = false;

  void set(std::uint64_t n, register_rule::kind how, std::int64_t number = 0) noexcept {
    if (n < frame_register_count) rules[n] = {how, number};
  }

  void set(std::uint64_t n, register_rule::kind how, dwarf_reader expression) noexcept {
    if (n < frame_register_count) rules[n] = {how, 0, expression};
  }
};

// Before glibc 2.35 finding the rules of a place takes the dynamic loader's lock.
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
inline constexpr bool rules_need_a_lock = false;
#else
inline constexpr bool rules_need_a_lock = true;
#endif

enum class rules_result : std::uint8_t { found, none, not_supported };

// The rules at `place`, an address in the code.
rules_result find_frame_rules(std::uintptr_t place, frame_rules& out) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
