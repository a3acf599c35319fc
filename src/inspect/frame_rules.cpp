#include "inspect/frame_rules.hpp"

#include <cstring>

#include <dlfcn.h>

#if !defined(DLFO_STRUCT_HAS_EH_DBASE)
// libgcc's. The header that declares them, unwind-dw2-fde.h, is not installed.
extern "C" {

struct dwarf_eh_bases {
  void* text;
  void* data;
  void* function;
};

const void* _Unwind_Find_FDE(void* place, dwarf_eh_bases* bases);
}
#endif

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// The part of a CIE that holds for all functions that name it.
struct common_rules {
  std::uint64_t code_unit = 1;
  std::int64_t data_unit = 1;
  std::uint64_t return_register = return_address_register;
  std::uint8_t pointer_encoding = 0;  // DW_EH_PE_absptr
  bool has_data = false;              // augmentation data, in the FDE as well
  bool is_signal_frame = false;
  dwarf_reader program{nullptr, nullptr};
};

// The bytes of a CIE or an FDE after its length.
dwarf_reader entry_at(const std::uint8_t* p) noexcept {
  std::uint32_t length = 0;
  std::memcpy(&length, p, sizeof length);
  return {p + 4, length < 0xffff'fff0 ? p + 4 + length : p + 4};
}

bool read_common(const std::uint8_t* at, common_rules& out) noexcept {
  dwarf_reader in = entry_at(at);
  if (in.fixed<std::uint32_t>() != 0) return false;  // not a CIE
  const auto version = in.fixed<std::uint8_t>();
  const char* augmentation = in.text();
  out.code_unit = in.uleb();
  out.data_unit = in.sleb();
  out.return_register = version == 1 ? in.fixed<std::uint8_t>() : in.uleb();
  if (*augmentation == 'z') {
    out.has_data = true;
    dwarf_reader data = in.block(in.uleb());
    while (*++augmentation != '\0') {
      switch (*augmentation) {
        case 'R':
          out.pointer_encoding = data.fixed<std::uint8_t>();
          break;
        case 'L':
          data.fixed<std::uint8_t>();
          break;
        case 'P':
          data.block(dwarf_reader::size_of(data.fixed<std::uint8_t>()));
          break;
        case 'S':
          out.is_signal_frame = true;
          break;
        case 'B':  // aarch64: signed with the other key
          break;
        default:
          return false;
      }
    }
  } else if (*augmentation != '\0') {
    return false;
  }
  out.program = in;
  return !in.failed();
}

// The instructions, DW_CFA_*. The first three have an operand in the lower six bits.
enum : std::uint8_t {
  cfa_advance_loc = 0x40,
  cfa_offset = 0x80,
  cfa_restore = 0xc0,
  cfa_nop = 0x00,
  cfa_advance_loc1 = 0x02,
  cfa_advance_loc2 = 0x03,
  cfa_advance_loc4 = 0x04,
  cfa_offset_extended = 0x05,
  cfa_restore_extended = 0x06,
  cfa_undefined = 0x07,
  cfa_same_value = 0x08,
  cfa_register = 0x09,
  cfa_remember_state = 0x0a,
  cfa_restore_state = 0x0b,
  cfa_def_cfa = 0x0c,
  cfa_def_cfa_register = 0x0d,
  cfa_def_cfa_offset = 0x0e,
  cfa_def_cfa_expression = 0x0f,
  cfa_expression = 0x10,
  cfa_val_expression = 0x16,
  cfa_offset_extended_sf = 0x11,
  cfa_def_cfa_sf = 0x12,
  cfa_def_cfa_offset_sf = 0x13,
  cfa_val_offset = 0x14,
  cfa_val_offset_sf = 0x15,
  cfa_GNU_args_size = 0x2e,
  cfa_aarch64_sign = 0x2d,
};

// Runs the instructions up to the place `pc`, of code that begins at `begin`.
class rule_program {
 public:
  rule_program(const common_rules& common, std::uintptr_t begin, std::uintptr_t pc) noexcept
      : common_(common), at_(begin), pc_(pc) {}

  // False if an instruction is unknown, or the bytes end in the middle of one.
  bool run(dwarf_reader in) noexcept {
    while (!in.at_end() && at_ <= pc_) {
      if (!step(in)) return false;
    }
    return !in.failed();
  }

  void keep_initial() noexcept { initial_ = now; }

  frame_rules now;

 private:
  static constexpr unsigned depth = 8;

  bool step(dwarf_reader& in) noexcept;

  void advance(std::uint64_t units) noexcept { at_ += units * common_.code_unit; }

  std::int64_t scaled(std::uint64_t n) const noexcept {
    return static_cast<std::int64_t>(n * static_cast<std::uint64_t>(common_.data_unit));
  }

  const common_rules& common_;
  std::uintptr_t at_;
  const std::uintptr_t pc_;
  frame_rules initial_;
  frame_rules remembered_[depth];
  unsigned remembered_count_ = 0;
};

bool rule_program::step(dwarf_reader& in) noexcept {
  using kind = register_rule::kind;
  const auto op = in.fixed<std::uint8_t>();
  const std::uint64_t low = op & 0x3f;
  switch (op & 0xc0) {
    case cfa_advance_loc:
      advance(low);
      return true;
    case cfa_offset:
      now.set(low, kind::at_offset, scaled(in.uleb()));
      return true;
    case cfa_restore:
      if (low < frame_register_count) now.rules[low] = initial_.rules[low];
      return true;
    default:
      break;
  }
  switch (op) {
    case cfa_nop:
      return true;
    case cfa_advance_loc1:
      advance(in.fixed<std::uint8_t>());
      return true;
    case cfa_advance_loc2:
      advance(in.fixed<std::uint16_t>());
      return true;
    case cfa_advance_loc4:
      advance(in.fixed<std::uint32_t>());
      return true;
    case cfa_offset_extended: {
      const std::uint64_t n = in.uleb();
      now.set(n, kind::at_offset, scaled(in.uleb()));
      return true;
    }
    case cfa_restore_extended: {
      const std::uint64_t n = in.uleb();
      if (n < frame_register_count) now.rules[n] = initial_.rules[n];
      return true;
    }
    case cfa_undefined:
      now.set(in.uleb(), kind::undefined);
      return true;
    case cfa_same_value:
      now.set(in.uleb(), kind::same);
      return true;
    case cfa_register: {
      const std::uint64_t n = in.uleb();
      now.set(n, kind::in_register, static_cast<std::int64_t>(in.uleb()));
      return true;
    }
    case cfa_remember_state:
      if (remembered_count_ == depth) return false;
      remembered_[remembered_count_++] = now;
      return true;
    case cfa_restore_state:
      if (remembered_count_ == 0) return false;
      now = remembered_[--remembered_count_];
      return true;
    case cfa_def_cfa:
      now.cfa_register = in.uleb();
      now.cfa_offset = static_cast<std::int64_t>(in.uleb());
      now.has_cfa_expression = false;
      return true;
    case cfa_def_cfa_register:
      now.cfa_register = in.uleb();
      now.has_cfa_expression = false;
      return true;
    case cfa_def_cfa_offset:
      now.cfa_offset = static_cast<std::int64_t>(in.uleb());
      return true;
    case cfa_def_cfa_expression:
      now.has_cfa_expression = true;
      now.cfa_expression = in.block(in.uleb());
      return true;
    case cfa_expression:
    case cfa_val_expression: {
      const std::uint64_t n = in.uleb();
      now.set(
          n, op == cfa_expression ? kind::at_expression : kind::is_expression, in.block(in.uleb()));
      return true;
    }
    case cfa_offset_extended_sf: {
      const std::uint64_t n = in.uleb();
      now.set(n, kind::at_offset, scaled(static_cast<std::uint64_t>(in.sleb())));
      return true;
    }
    case cfa_def_cfa_sf:
      now.cfa_register = in.uleb();
      now.cfa_offset = scaled(static_cast<std::uint64_t>(in.sleb()));
      now.has_cfa_expression = false;
      return true;
    case cfa_def_cfa_offset_sf:
      now.cfa_offset = scaled(static_cast<std::uint64_t>(in.sleb()));
      return true;
    case cfa_val_offset: {
      const std::uint64_t n = in.uleb();
      now.set(n, kind::is_offset, scaled(in.uleb()));
      return true;
    }
    case cfa_val_offset_sf: {
      const std::uint64_t n = in.uleb();
      now.set(n, kind::is_offset, scaled(static_cast<std::uint64_t>(in.sleb())));
      return true;
    }
    case cfa_aarch64_sign:  // the return address is signed from here, or no more
      return true;
    case cfa_GNU_args_size:
      in.uleb();
      return true;
    default:
      return false;
  }
}

struct function_entry {
  std::uintptr_t begin = 0;  // of the code
  const std::uint8_t* entry = nullptr;
};

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

// The entry of the function at `place`. Each file has a table of them, sorted by address;
// glibc finds the file without a lock. libgcc's search would look at functions that a JIT
// compiler has registered as well, under a lock, and here that may be held.
function_entry find_function(std::uintptr_t place) noexcept {
  dl_find_object file;
  if (::_dl_find_object(reinterpret_cast<void*>(place), &file) != 0) return {};
  const auto* const table = static_cast<const std::uint8_t*>(file.dlfo_eh_frame);
  if (table == nullptr) return {};
  // Version 1; then the encodings of three parts: .eh_frame's address, from here in 4
  // bytes; the number of entries, in 4 bytes; the entries, from the table in 4 bytes
  // each.
  if (table[0] != 1 || table[1] != 0x1b || table[2] != 0x03 || table[3] != 0x3b) return {};

  struct row {
    std::int32_t code;
    std::int32_t entry;
  };

  std::uint32_t count = 0;
  std::memcpy(&count, table + 8, sizeof count);
  const auto at = [table](std::uint32_t i) noexcept {
    row r;
    std::memcpy(&r, table + 12 + i * sizeof r, sizeof r);
    return r;
  };
  const auto base = reinterpret_cast<std::uintptr_t>(table);
  std::uint32_t low = 0;  // the last row that begins at the place or before it
  std::uint32_t high = count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (base + static_cast<std::uintptr_t>(std::intptr_t{at(middle).code}) <= place ? low : high) =
        middle;
  }
  if (count == 0) return {};
  const row found = at(low);
  const std::uintptr_t begin = base + static_cast<std::uintptr_t>(std::intptr_t{found.code});
  if (begin > place) return {};
  return {begin, table + found.entry};
}

#else

// Takes the loader's lock.
function_entry find_function(std::uintptr_t place) noexcept {
  dwarf_eh_bases bases{};
  const void* const entry = ::_Unwind_Find_FDE(reinterpret_cast<void*>(place), &bases);
  return {reinterpret_cast<std::uintptr_t>(bases.function),
          static_cast<const std::uint8_t*>(entry)};
}

#endif

}  // namespace

rules_result find_frame_rules(std::uintptr_t place, frame_rules& out) noexcept {
  const function_entry function = find_function(place);
  if (function.entry == nullptr) return rules_result::none;

  // An FDE: how far before it its CIE is, the code that it is for, and its instructions.
  dwarf_reader in = entry_at(function.entry);
  const std::uint8_t* const from = in.at();
  const auto back = in.fixed<std::uint32_t>();
  common_rules common;
  if (in.failed() || !read_common(from - back, common)) return rules_result::not_supported;
  const std::size_t pointer = dwarf_reader::size_of(common.pointer_encoding);
  if (pointer == 0) return rules_result::not_supported;
  in.block(pointer);
  const std::uint64_t size = pointer == 8   ? in.fixed<std::uint64_t>()
                             : pointer == 4 ? in.fixed<std::uint32_t>()
                                            : in.fixed<std::uint16_t>();
  if (place - function.begin >= size) return rules_result::none;  // in a gap
  if (common.has_data) in.block(in.uleb());

  rule_program program(common, function.begin, place);
  program.now.set(stack_pointer_register, register_rule::kind::is_offset);
  if (!program.run(common.program)) return rules_result::not_supported;
  program.keep_initial();
  if (!program.run(in)) return rules_result::not_supported;
  out = program.now;
  out.return_register = common.return_register;
  out.is_signal_frame = common.is_signal_frame;
  return rules_result::found;
}

}  // namespace vigil::inline VIGIL_ABI::detail
