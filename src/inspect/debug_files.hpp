// debug_files: names of functions out of the symbol tables and the debug information of
// the process's files, by libdw. Without libdw it knows none.
#pragma once

#include "inspect/symbols.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#if VIGIL_HAS_LIBDW
#include <elfutils/libdwfl.h>
#endif

namespace VIGIL_DETAIL {

class symbol_reader::debug_files {
 public:
#if VIGIL_HAS_LIBDW
  debug_files();
  ~debug_files();

  // Adds the functions at the place, the innermost first.
  void name(std::uintptr_t place, std::vector<code_function>& out);

 private:
  struct die_range {
    Dwarf_Addr end;
    Dwarf_Die die;
  };

  using die_ranges = std::map<Dwarf_Addr, die_range>;  // by where they begin

  static Dwarf_Die* find(die_ranges& ranges, Dwarf_Addr place);

  void name_by_dwarf(Dwfl_Module* module, Dwarf_Addr place, std::vector<code_function>& out);
  Dwarf_Die* unit_at(Dwfl_Module* module, Dwarf_Addr place, Dwarf_Addr& bias);
  Dwarf_Die* function_at(Dwarf_Die* unit, Dwarf_Addr place);

  Dwfl* all_ = nullptr;
  std::map<Dwfl_Module*, die_ranges> units_;
  std::map<const void*, die_ranges> functions_;  // of each unit
#else
  void name(std::uintptr_t, std::vector<code_function>&) {}
#endif
};

}  // namespace VIGIL_DETAIL
