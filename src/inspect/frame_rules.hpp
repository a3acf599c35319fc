// frame_rules: where a function keeps the registers of its caller, at one place of its
// code, as call frame information (.eh_frame) says it. Compilers write that for
// exceptions, so it needs no frame pointers and exists for Debian's libraries as well.
//
// A place of a copied stack may be in a file that has been closed since, so the
// information is copied by the kernel before it is read.
//
// Reading allocates nothing, and takes no lock unless rules_need_a_lock:
// async-signal-safe.
#pragma once

#include "inspect/dwarf_reader.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <dlfcn.h>

namespace VIGIL_DETAIL {

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

// An expression's place in expression_bytes.
struct saved_expression {
  std::uint16_t begin = 0;
  std::uint16_t size = 0;
};

// Copies of expressions: there is one in the linker's tables of calls, and some twenty
// short ones in the frames of signals.
class expression_bytes {
 public:
  // False if there is no room.
  bool save(dwarf_reader from, saved_expression& out) noexcept {
    const std::size_t size = from.left();
    if (size > sizeof bytes_ - count_) return false;
    std::memcpy(bytes_ + count_, from.at(), size);
    out = {count_, static_cast<std::uint16_t>(size)};
    count_ = static_cast<std::uint16_t>(count_ + size);
    return true;
  }

  dwarf_reader at(saved_expression e) const noexcept {
    return {bytes_ + e.begin, bytes_ + e.begin + e.size};
  }

 private:
  std::uint16_t count_ = 0;
  std::uint8_t bytes_[190] = {};
};

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
  saved_expression expression;
  std::int64_t number = 0;  // an offset from the CFA, or a register
};

struct frame_rules {
  std::uintptr_t function = 0;  // where its code begins
  std::uint64_t cfa_register = 0;
  std::int64_t cfa_offset = 0;
  bool has_cfa_expression = false;
  bool is_signal_frame = false;
  saved_expression cfa_expression;
  std::uint64_t return_register = 0;
  register_rule rules[frame_register_count];
  expression_bytes expressions;

  void set(std::uint64_t n, register_rule::kind how, std::int64_t number = 0) noexcept {
    if (n < frame_register_count) rules[n] = {how, {}, number};
  }

  void set(std::uint64_t n, register_rule::kind how, saved_expression expression) noexcept {
    if (n < frame_register_count) rules[n] = {how, expression, 0};
  }
};

// Before glibc 2.35 finding the rules of a place takes the dynamic loader's lock.
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
inline constexpr bool rules_need_a_lock = false;
#else
inline constexpr bool rules_need_a_lock = true;
#endif

enum class rules_result : std::uint8_t { found, none, not_supported };

// The rules of one dump, each found once, as equal frames are common. Another file may
// be loaded where one was closed: a later dump looks anew.
//
// One that knows none is all zero, so a static one takes no room in the file.
class known_rules {
 public:
  // The rules at `place`, an address in the code; until the next call.
  rules_result find(std::uintptr_t place, const frame_rules*& out) noexcept;

  void forget() noexcept { std::memset(places_, 0, sizeof places_); }

 private:
  // A place may be in any slot of its set.
  static constexpr std::size_t sets = 64;
  static constexpr std::size_t set_size = 8;
  // The longest in LLVM's library, say, has 2.4 KiB.
  static constexpr std::size_t longest_function = std::size_t{8} << 10;

  struct entry {
    rules_result result = rules_result::found;
    frame_rules rules;
  };

  rules_result look_up(std::uintptr_t place, frame_rules& out) noexcept;

  std::uintptr_t places_[sets][set_size] = {};  // 0: none
  entry entries_[sets][set_size];
  std::size_t next_ = 0;                          // the slot of a full set that is used anew
  std::uint8_t function_[longest_function] = {};  // its entry, which is being read
};

}  // namespace VIGIL_DETAIL
