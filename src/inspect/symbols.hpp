// symbols: the names of places in the code.
//
// With libdw (meson option `symbols`) these are all functions, inlined ones too, with
// their lines, as far as the files on the disk say; without it only what the dynamic
// linker knows. tools/vigil-symbols names the rest afterwards.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace vigil::inline VIGIL_ABI::detail {

struct code_function {
  std::string name;  // as in the source; "" if it is not known
  std::string file;  // "" if it is not known
  unsigned line = 0;
};

struct code_place {
  std::string module;         // the path of its file; "" if it is in none
  std::uintptr_t offset = 0;  // in the file's own addresses, as addr2line takes them
  // The innermost first: all but the last were inlined into the next one. Never empty.
  std::vector<code_function> functions;
};

// Names places, each once. For one thread at a time. Opens files.
class symbol_reader {
 public:
  symbol_reader();
  ~symbol_reader();
  symbol_reader(const symbol_reader&) = delete;
  symbol_reader& operator=(const symbol_reader&) = delete;

  const code_place& at(std::uintptr_t place);

 private:
  class debug_files;

  std::unique_ptr<debug_files> files_;
  std::unordered_map<std::uintptr_t, code_place> known_;
};

// Has find_module() know the program's own path, which takes a system call. To be called
// before it is used in a signal handler.
void note_program_path() noexcept;

// Writes the path of the file that a place is in to `path`, and returns its address
// there. False if it is in none. Async-signal-safe.
bool find_module(std::uintptr_t place,
                 char* path,
                 std::size_t room,
                 std::uintptr_t& offset) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
