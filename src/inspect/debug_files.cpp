#include "inspect/debug_files.hpp"

#if VIGIL_HAS_LIBDW

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <unistd.h>

namespace vigil::inline VIGIL_ABI::detail {
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

using scope_array = std::unique_ptr<Dwarf_Die, decltype(&std::free)>;

// The function at the place, after those that were inlined into it there.
std::vector<Dwarf_Die> functions_at(Dwarf_Die* unit, Dwarf_Addr place) {
  std::vector<Dwarf_Die> all;
  Dwarf_Die* scopes = nullptr;
  const int count = dwarf_getscopes(unit, place, &scopes);
  const scope_array around(scopes, &std::free);
  Dwarf_Die* const innermost = std::find_if(scopes, scopes + std::max(count, 0), is_function);
  if (count <= 0 || innermost == scopes + count) return all;
  // The scopes around an inlined function are those of its source. Those around its place
  // are the parents in the tree.
  Dwarf_Die* parents = nullptr;
  const int parent_count = dwarf_getscopes_die(innermost, &parents);
  const scope_array owned(parents, &std::free);
  for (int i = 0; i < parent_count; ++i) {
    if (!is_function(parents[i])) continue;
    all.push_back(parents[i]);
    if (dwarf_tag(&parents[i]) == DW_TAG_subprogram) break;
  }
  return all;
}

// clang writes no index from places to units (.debug_aranges), without which libdw finds
// none by itself.
Dwarf_Die* unit_of(Dwfl_Module* module, Dwarf_Addr place, Dwarf_Addr& bias) {
  Dwarf_Die* unit = dwfl_module_addrdie(module, place, &bias);
  if (unit != nullptr) return unit;
  do {
    unit = dwfl_module_nextcu(module, unit, &bias);
  } while (unit != nullptr && dwarf_haspc(unit, place - bias) != 1);
  return unit;
}

// By the debug information; the innermost function first.
void name_by_dwarf(Dwfl_Module* module, Dwarf_Addr place, std::vector<code_function>& out) {
  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = unit_of(module, place, bias);
  if (unit == nullptr) return;
  code_function here;
  if (Dwarf_Line* const line = dwarf_getsrc_die(unit, place - bias)) {
    int number = 0;
    const char* const file = dwarf_linesrc(line, nullptr, nullptr);
    if (file != nullptr && dwarf_lineno(line, &number) == 0) {
      here.file = file;
      here.line = static_cast<unsigned>(number);
    }
  }
  for (Dwarf_Die& function : functions_at(unit, place - bias)) {
    here.name = name_of(&function);
    out.push_back(std::move(here));
    here = {};
    if (dwarf_tag(&function) == DW_TAG_inlined_subroutine) read_call(&function, unit, here);
  }
}

}  // namespace

symbol_reader::debug_files::debug_files() : all_(dwfl_begin(&callbacks)) {
  if (all_ == nullptr) return;
  dwfl_linux_proc_report(all_, ::getpid());
  dwfl_report_end(all_, nullptr, nullptr);
}

symbol_reader::debug_files::~debug_files() {
  if (all_ != nullptr) dwfl_end(all_);
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

}  // namespace vigil::inline VIGIL_ABI::detail

#endif
