// debug_files: names of functions out of the symbol tables and the debug information of
// the process's files, by libdw. Without libdw it knows none.
#pragma once

#include "inspect/symbols.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <string>
#include <vector>

#if VIGIL_HAS_LIBDW
#include <elfutils/libdwfl.h>
#endif

namespace vigil::inline VIGIL_ABI::detail {

// A C++ name as in the source; any other as it is.
std::string demangled(const char* name);

class symbol_reader::debug_files {
 public:
#if VIGIL_HAS_LIBDW
  debug_files();
  ~debug_files();

  // Adds the functions at the place, the innermost first.
  void name(std::uintptr_t place, std::vector<code_function>& out);

 private:
  Dwfl* all_ = nullptr;
#else
  void name(std::uintptr_t, std::vector<code_function>&) {}
#endif
};

}  // namespace vigil::inline VIGIL_ABI::detail
