#include "inspect/debug_files.hpp"

#if VIGIL_HAS_LIBDW

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// Looks for separate debug information by build id on this machine alone: not by
// debuginfod, which asks the network.
const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                  .find_debuginfo = dwfl_build_id_find_debuginfo,
                                  .section_address = nullptr,
                                  .debuginfo_path = nullptr};

std::string name_of(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    const char* const mangled = dwarf_formstring(dwarf_attr_integrate(die, kind, &attribute));
    if (mangled != nullptr) return demangled(mangled);
  }
  const char* const plain = dwarf_diename(die);
  return plain != nullptr ? plain : "";
}

// The place of the call that was inlined, in the function around it.
void read_call(Dwarf_Die* inlined, Dwarf_Die* unit, code_function& out) {
  Dwarf_Attribute attribute;
  Dwarf_Word line = 0;
  Dwarf_Word number = 0;
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0) return;
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &number) != 0) return;
  if (dwarf_getsrcfiles(unit, &files, &count) != 0) return;
  const char* const file = dwarf_filesrc(files, number, nullptr, nullptr);
  if (file == nullptr) return;
  out.file = file;
  out.line = static_cast<unsigned>(line);
}

bool is_function(Dwarf_Die& d) {
  const int tag = dwarf_tag(&d);
  return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;
}

// Adds the functions around the place, up to this one, the innermost first.
void add_functions(Dwarf_Die around, Dwarf_Addr place, std::vector<Dwarf_Die>& out) {
  Dwarf_Die child;
  for (int got = dwarf_child(&around, &child); got == 0; got = dwarf_siblingof(&child, &child)) {
    const bool may_hold =
        dwarf_tag(&child) == DW_TAG_inlined_subroutine || dwarf_tag(&child) == DW_TAG_lexical_block;
    if (!may_hold || dwarf_haspc(&child, place) <= 0) continue;
    add_functions(child, place, out);
    break;
  }
  if (is_function(around)) out.push_back(around);
}

// Calls f(subprogram) for each that has code, in namespaces, classes and other functions.
template <class F>
void for_each_function(Dwarf_Die parent, F& f) {
  Dwarf_Die child;
  for (int got = dwarf_child(&parent, &child); got == 0; got = dwarf_siblingof(&child, &child)) {
    switch (dwarf_tag(&child)) {
      case DW_TAG_subprogram:
        f(child);
        for_each_function(child, f);
        break;
      case DW_TAG_namespace:
      case DW_TAG_structure_type:
      case DW_TAG_class_type:
      case DW_TAG_union_type:
      case DW_TAG_lexical_block:
        for_each_function(child, f);
        break;
      default:
        break;
    }
  }
}

// The unit with the functions: with -gsplit-dwarf it lies in a file of its own (.dwo),
// which must be where the compiler has put it. Otherwise this unit.
Dwarf_Die whole_unit(Dwarf_Die& unit) {
  std::uint8_t type = 0;
  Dwarf_Die split{};
  dwarf_cu_info(unit.cu, nullptr, &type, nullptr, &split, nullptr, nullptr, nullptr);
  return type == DW_UT_skeleton && split.cu != nullptr ? split : unit;
}

// Calls f(begin, end) for each range of the code of a function or unit.
template <class F>
void for_each_range(Dwarf_Die& of, F f) {
  Dwarf_Addr base = 0;
  Dwarf_Addr begin = 0;
  Dwarf_Addr end = 0;
  for (std::ptrdiff_t at = 0; (at = dwarf_ranges(&of, at, &base, &begin, &end)) > 0;)
    f(begin, end);
}

}  // namespace

Dwarf_Die* symbol_reader::debug_files::find(die_ranges& ranges, Dwarf_Addr place) {
  const auto next = ranges.upper_bound(place);
  if (next == ranges.begin()) return nullptr;
  die_range& r = std::prev(next)->second;
  return place < r.end ? &r.die : nullptr;
}

symbol_reader::debug_files::debug_files() : all_(dwfl_begin(&callbacks)) {
  if (all_ == nullptr) return;
  dwfl_linux_proc_report(all_, ::getpid());
  dwfl_report_end(all_, nullptr, nullptr);
}

symbol_reader::debug_files::~debug_files() {
  if (all_ != nullptr) dwfl_end(all_);
}

// Modules have a table of their units' places (.debug_aranges), but clang writes none:
// then the units themselves are read, once.
Dwarf_Die* symbol_reader::debug_files::unit_at(Dwfl_Module* module,
                                               Dwarf_Addr place,
                                               Dwarf_Addr& bias) {
  if (Dwarf_Die* const unit = dwfl_module_addrdie(module, place, &bias)) return unit;
  const auto [found, is_new] = units_.try_emplace(module);
  die_ranges& ranges = found->second;
  if (is_new) {
    for (Dwarf_Die* unit = nullptr; (unit = dwfl_module_nextcu(module, unit, &bias)) != nullptr;) {
      for_each_range(*unit, [&](Dwarf_Addr begin, Dwarf_Addr end) {
        ranges[begin + bias] = {end + bias, *unit};
      });
    }
  }
  // One bias for all units of a file.
  if (dwfl_module_getdwarf(module, &bias) == nullptr) return nullptr;
  return find(ranges, place);
}

// dwarf_getscopes() looks neither into namespaces, where clang puts functions, nor into
// functions, where g++ puts lambdas.
Dwarf_Die* symbol_reader::debug_files::function_at(Dwarf_Die* unit, Dwarf_Addr place) {
  const auto [found, is_new] = functions_.try_emplace(unit->addr);
  die_ranges& ranges = found->second;
  if (is_new) {
    const auto add = [&](Dwarf_Die& function) {
      for_each_range(function, [&](Dwarf_Addr begin, Dwarf_Addr end) {
        ranges[begin] = {end, function};
      });
    };
    for_each_function(*unit, add);
  }
  return find(ranges, place);
}

// By the debug information; the innermost function first.
void symbol_reader::debug_files::name_by_dwarf(Dwfl_Module* module,
                                               Dwarf_Addr place,
                                               std::vector<code_function>& out) {
  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = unit_at(module, place, bias);
  if (unit == nullptr) return;
  Dwarf_Die whole = whole_unit(*unit);
  place -= bias;
  code_function here;
  if (Dwarf_Line* const line = dwarf_getsrc_die(unit, place)) {
    int number = 0;
    const char* const file = dwarf_linesrc(line, nullptr, nullptr);
    if (file != nullptr) {
      dwarf_lineno(line, &number);
      here.file = file;
      here.line = static_cast<unsigned>(number);
    }
  }
  Dwarf_Die* const outermost = function_at(&whole, place);
  if (outermost == nullptr) {
    // With line tables alone not every function is described. Its symbol has the name.
    if (!here.file.empty()) out.push_back(std::move(here));
    return;
  }
  std::vector<Dwarf_Die> all;
  add_functions(*outermost, place, all);
  for (Dwarf_Die& function : all) {
    here.name = name_of(&function);
    out.push_back(std::move(here));
    here = {};
    if (dwarf_tag(&function) == DW_TAG_inlined_subroutine) read_call(&function, &whole, here);
  }
}

void symbol_reader::debug_files::name(std::uintptr_t place, std::vector<code_function>& out) {
  Dwfl_Module* const module = all_ != nullptr ? dwfl_addrmodule(all_, place) : nullptr;
  if (module == nullptr) return;
  name_by_dwarf(module, place, out);
  GElf_Off offset = 0;
  GElf_Sym symbol;
  const char* const name =
      dwfl_module_addrinfo(module, place, &offset, &symbol, nullptr, nullptr, nullptr);
  if (name == nullptr) return;
  // The symbol table knows the whole name of the function around the inlined ones.
  if (out.empty()) out.emplace_back();
  out.back().name = demangled(name);
}

}  // namespace VIGIL_DETAIL

#endif
