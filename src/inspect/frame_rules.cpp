#include "inspect/frame_rules.hpp"

#include "core/base/foreign_memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

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

namespace VIGIL_DETAIL {
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

bool read_at(std::uintptr_t from, void* to, std::size_t size) noexcept {
  return read_loaded(reinterpret_cast<const void*>(from), to, size);
}

constexpr std::size_t length_size = 4;

// Copies the bytes of a CIE or an FDE after its length. False if they are gone, or do not
// fit.
template <std::size_t N>
bool copy_entry(std::uintptr_t at, std::uint8_t (&room)[N], dwarf_reader& out) noexcept {
  std::uint32_t length = 0;
  static_assert(sizeof length == length_size && N < 0xffff'fff0);
  if (!read_at(at, &length, sizeof length) || length > N) return false;
  if (!read_at(at + length_size, room, length)) return false;
  out = {room, room + length};
  return true;
}

// `in` is a copy of it.
bool read_common(dwarf_reader in, common_rules& out) noexcept {
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

  void save_initial() noexcept { initial_ = now; }

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
      return now.expressions.save(in.block(in.uleb()), now.cfa_expression);
    case cfa_expression:
    case cfa_val_expression: {
      const std::uint64_t n = in.uleb();
      saved_expression saved;
      if (!now.expressions.save(in.block(in.uleb()), saved)) return false;
      now.set(n, op == cfa_expression ? kind::at_expression : kind::is_expression, saved);
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
  std::uintptr_t at = 0;     // of the entry itself; 0: there is none
};

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

// A file's table of its functions, sorted by address.
struct table_head {
  // Version 1; then the encodings of three parts: .eh_frame's address, from here in 4
  // bytes; the number of entries, in 4 bytes; the entries, from the table in 4 bytes
  // each.
  static constexpr std::uint8_t known[4] = {1, 0x1b, 0x03, 0x3b};

  std::uint8_t encodings[4];
  std::int32_t frames;
  std::uint32_t count;
};

struct table_row {
  std::int32_t code;
  std::int32_t entry;
};

// The last row that begins at the place or before it; if there is none, the first one.
bool find_row(std::uintptr_t table, std::uintptr_t place, table_row& out) noexcept {
  table_head head;
  if (!read_at(table, &head, sizeof head)) return false;
  if (std::memcmp(head.encodings, table_head::known, sizeof head.encodings) != 0) return false;
  if (head.count == 0) return false;
  const auto address_of = [&](std::uint32_t i) {
    return table + sizeof head + std::uintptr_t{i} * sizeof(table_row);
  };
  const auto is_before = [&](const table_row& r) {
    return table + static_cast<std::uintptr_t>(std::intptr_t{r.code}) <= place;
  };
  std::uint32_t low = 0;
  std::uint32_t high = head.count;
  // A few rows are copied at once, since a copy by the kernel has its cost.
  table_row rows[32];
  while (high - low > std::size(rows)) {
    const std::uint32_t middle = low + (high - low) / 2;
    table_row r;
    if (!read_at(address_of(middle), &r, sizeof r)) return false;
    (is_before(r) ? low : high) = middle;
  }
  const std::uint32_t left = high - low;
  if (!read_at(address_of(low), rows, left * sizeof(table_row))) return false;
  const table_row* const after = std::partition_point(rows + 1, rows + left, is_before);
  out = after[-1];
  return true;
}

// The entry of the function at `place`. glibc finds the file without a lock. libgcc's
// search would look at functions that a JIT compiler has registered as well, under a
// lock, and here that may be held.
function_entry find_function(std::uintptr_t place) noexcept {
  dl_find_object file;
  if (::_dl_find_object(reinterpret_cast<void*>(place), &file) != 0) return {};
  const auto table = reinterpret_cast<std::uintptr_t>(file.dlfo_eh_frame);
  table_row row;
  if (table == 0 || !find_row(table, place, row)) return {};
  const auto address = [table](std::int32_t offset) {
    return table + static_cast<std::uintptr_t>(std::intptr_t{offset});
  };
  if (address(row.code) > place) return {};
  return {address(row.code), address(row.entry)};
}

#else

// Takes the loader's lock.
function_entry find_function(std::uintptr_t place) noexcept {
  dwarf_eh_bases bases{};
  const void* const entry = ::_Unwind_Find_FDE(reinterpret_cast<void*>(place), &bases);
  return {reinterpret_cast<std::uintptr_t>(bases.function),
          reinterpret_cast<std::uintptr_t>(entry)};
}

#endif

}  // namespace

rules_result known_rules::look_up(std::uintptr_t place, frame_rules& out) noexcept {
  const function_entry function = find_function(place);
  if (function.at == 0) return rules_result::none;

  // An FDE: how far before it its CIE is, the code that it is for, and its instructions.
  dwarf_reader in{nullptr, nullptr};
  dwarf_reader common_entry{nullptr, nullptr};
  std::uint8_t common_room[256];
  common_rules common;
  if (!copy_entry(function.at, function_, in)) return rules_result::not_supported;
  const std::uintptr_t common_at = function.at + length_size - in.fixed<std::uint32_t>();
  if (in.failed() || !copy_entry(common_at, common_room, common_entry) ||
      !read_common(common_entry, common)) {
    return rules_result::not_supported;
  }
  const std::size_t pointer = dwarf_reader::size_of(common.pointer_encoding);
  if (pointer == 0) return rules_result::not_supported;
  in.block(pointer);
  const std::uint64_t size = pointer == 8   ? in.fixed<std::uint64_t>()
                             : pointer == 4 ? in.fixed<std::uint32_t>()
                                            : in.fixed<std::uint16_t>();
  if (place - function.begin >= size) return rules_result::none;  // in a gap
  if (common.has_data) in.block(in.uleb());

  rule_program program(common, function.begin, place);
  program.now.cfa_register = stack_pointer_register;
  program.now.set(stack_pointer_register, register_rule::kind::is_offset);
  if (!program.run(common.program)) return rules_result::not_supported;
  program.save_initial();
  if (!program.run(in)) return rules_result::not_supported;
  out = program.now;
  out.function = function.begin;
  out.return_register = common.return_register;
  out.is_signal_frame = common.is_signal_frame;
  return rules_result::found;
}

rules_result known_rules::find(std::uintptr_t place, const frame_rules*& out) noexcept {
  if (place == 0) return rules_result::none;
  const std::uint64_t mixed = std::uint64_t{place} * 0x9e37'79b9'7f4a'7c15;
  const std::size_t set = mixed >> 32 & (sets - 1);
  auto& places = places_[set];
  const std::uintptr_t* at = std::find(std::begin(places), std::end(places), place);
  if (at == std::end(places)) {
    at = std::find(std::begin(places), std::end(places), std::uintptr_t{0});
    if (at == std::end(places)) at = places + next_++ % set_size;
    const auto slot = static_cast<std::size_t>(at - places);
    entry& fresh = entries_[set][slot];
    fresh.result = look_up(place, fresh.rules);
    places[slot] = place;
  }
  const entry& e = entries_[set][at - places];
  out = &e.rules;
  return e.result;
}

}  // namespace VIGIL_DETAIL
