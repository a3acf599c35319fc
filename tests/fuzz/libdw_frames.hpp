// Call frame information as libdw reads it, and the values that its operations mean.
#pragma once

#include "fuzz/input.hpp"
#include "inspect/frame_step.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>

namespace fuzz {

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A file of ELF in memory that has this .eh_frame.
inline std::string elf_with(std::string_view frames, std::uintptr_t at) {
  static constexpr char names[] = "\0.eh_frame\0.shstrtab";
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_ident[EI_VERSION] = EV_CURRENT;
  head.e_type = ET_DYN;
  head.e_machine = EM_X86_64;
  head.e_version = EV_CURRENT;
  head.e_ehsize = sizeof head;
  head.e_shentsize = sizeof(Elf64_Shdr);
  head.e_shnum = 3;
  head.e_shstrndx = 2;
  const std::size_t padded = (frames.size() + 7) & ~std::size_t{7};
  head.e_shoff = sizeof head + padded + sizeof names;
  head.e_shoff = (head.e_shoff + 7) & ~std::size_t{7};
  std::string all;
  append(all, head);
  all += frames;
  all.resize(sizeof head + padded);
  all.append(names, sizeof names);
  all.resize(head.e_shoff);
  Elf64_Shdr none{};
  append(all, none);
  Elf64_Shdr section{};
  section.sh_name = 1;
  section.sh_type = SHT_PROGBITS;
  section.sh_flags = SHF_ALLOC;
  section.sh_addr = at;
  section.sh_offset = sizeof head;
  section.sh_size = frames.size();
  section.sh_addralign = 4;
  append(all, section);
  Elf64_Shdr strings{};
  strings.sh_name = 11;
  strings.sh_type = SHT_STRTAB;
  strings.sh_offset = sizeof head + padded;
  strings.sh_size = sizeof names;
  strings.sh_addralign = 1;
  append(all, strings);
  return all;
}

template <auto Free>
struct freed_by {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};

// One rule: how to compute a value.
struct their_rule {
  enum class kind : std::uint8_t { not_read, undefined, same, computed };

  std::vector<Dwarf_Op> operations;
  kind how = kind::not_read;
};

struct their_rules {
  their_rule cfa;
  std::array<their_rule, vigil::detail::frame_register_count> registers;
  bool is_signal_frame = false;
};

inline std::optional<their_rules> read_by_libdw(std::string_view frames,
                                                std::uintptr_t at,
                                                std::uintptr_t place) {
  static const unsigned version = ::elf_version(EV_CURRENT);
  static_cast<void>(version);
  std::string image = elf_with(frames, at);
  const std::unique_ptr<Elf, freed_by<elf_end>> elf(::elf_memory(image.data(), image.size()));
  expect(elf != nullptr, "libelf reads the file");
  const std::unique_ptr<Dwarf_CFI, freed_by<dwarf_cfi_end>> cfi(::dwarf_getcfi_elf(elf.get()));
  expect(cfi != nullptr, "libdw finds the section");
  Dwarf_Frame* got = nullptr;
  if (::dwarf_cfi_addrframe(cfi.get(), place, &got) != 0) return std::nullopt;
  const std::unique_ptr<Dwarf_Frame, freed_by<std::free>> f(got);
  their_rules out;
  Dwarf_Addr begin = 0;
  Dwarf_Addr end = 0;
  ::dwarf_frame_info(f.get(), &begin, &end, &out.is_signal_frame);
  Dwarf_Op* operations = nullptr;
  std::size_t count = 0;
  if (::dwarf_frame_cfa(f.get(), &operations, &count) != 0) return std::nullopt;
  out.cfa = {{operations, operations + count}, their_rule::kind::computed};
  for (unsigned n = 0; n < vigil::detail::frame_register_count; ++n) {
    Dwarf_Op room[3];
    if (::dwarf_frame_register(f.get(), static_cast<int>(n), room, &operations, &count) != 0)
      continue;
    const auto how = count != 0              ? their_rule::kind::computed
                     : operations == nullptr ? their_rule::kind::same
                                             : their_rule::kind::undefined;
    out.registers[n] = {{operations, operations + count}, how};
  }
  return out;
}

// --- what its operations mean

struct machine {
  const vigil::detail::frame_registers& registers;
  const vigil::detail::stack_copy& stack;
  std::uintptr_t cfa = 0;
};

// Returns nothing if an operation needs a value that is not known, or is none of the
// library's, or if there are more values than the library keeps. The last four below are
// libdw's own, for rules that are no expressions.
inline std::optional<std::uintptr_t> evaluate(const their_rule& rule,
                                              const machine& m,
                                              bool is_of_cfa) {
  constexpr std::size_t most = 16;
  std::vector<std::uintptr_t> values;
  bool is_value = is_of_cfa;
  const auto pop = [&]() -> std::optional<std::uintptr_t> {
    if (values.empty()) return std::nullopt;
    const std::uintptr_t v = values.back();
    values.pop_back();
    return v;
  };
  for (const Dwarf_Op& op : rule.operations) {
    const bool is_first = &op == &rule.operations.front();
    const bool is_last = &op == &rule.operations.back();
    const auto push_register = [&](std::uint64_t n, std::uint64_t offset) {
      if (!m.registers.knows(n)) return false;
      values.push_back(m.registers[n] + offset);
      return true;
    };
    if (op.atom >= DW_OP_lit0 && op.atom <= DW_OP_lit31) {
      values.push_back(op.atom - unsigned{DW_OP_lit0});
    } else if (op.atom >= DW_OP_breg0 && op.atom <= DW_OP_breg31) {
      if (!push_register(op.atom - unsigned{DW_OP_breg0}, op.number)) return std::nullopt;
    } else {
      switch (op.atom) {
        case DW_OP_const1u:
        case DW_OP_const1s:
        case DW_OP_const2u:
        case DW_OP_const2s:
        case DW_OP_constu:
        case DW_OP_consts:
          values.push_back(op.number);
          break;
        case DW_OP_dup:
          if (values.empty()) return std::nullopt;
          values.push_back(values.back());
          break;
        case DW_OP_plus_uconst:
          if (values.empty()) return std::nullopt;
          values.back() += op.number;
          break;
        case DW_OP_deref: {
          const auto at = pop();
          std::uintptr_t word = 0;
          if (!at || !m.stack.read(*at, word)) return std::nullopt;
          values.push_back(word);
          break;
        }
        case DW_OP_regx:
          if (!is_first || !is_last || !push_register(op.number, 0)) return std::nullopt;
          is_value = true;
          break;
        case DW_OP_bregx:
          if (!is_first || !is_last || !push_register(op.number, op.number2)) return std::nullopt;
          break;
        case DW_OP_call_frame_cfa:
          if (!is_first || is_of_cfa) return std::nullopt;
          values.push_back(m.cfa);
          break;
        case DW_OP_stack_value:
          if (!is_last || is_of_cfa) return std::nullopt;
          is_value = true;
          break;
        default: {
          const auto b = pop();
          const auto a = pop();
          if (!a || !b) return std::nullopt;
          switch (op.atom) {
            case DW_OP_and:
              values.push_back(*a & *b);
              break;
            case DW_OP_minus:
              values.push_back(*a - *b);
              break;
            case DW_OP_or:
              values.push_back(*a | *b);
              break;
            case DW_OP_plus:
              values.push_back(*a + *b);
              break;
            case DW_OP_shl:
              values.push_back(*b < 64 ? *a << *b : 0);
              break;
            case DW_OP_shr:
              values.push_back(*b < 64 ? *a >> *b : 0);
              break;
            case DW_OP_ge:
              values.push_back(static_cast<std::int64_t>(*a) >= static_cast<std::int64_t>(*b));
              break;
            default:
              return std::nullopt;
          }
        }
      }
    }
    if (values.size() > most) return std::nullopt;
  }
  const auto result = pop();
  if (!result || is_value) return result;
  std::uintptr_t word = 0;
  return m.stack.read(*result, word) ? std::optional(word) : std::nullopt;
}

}  // namespace fuzz
