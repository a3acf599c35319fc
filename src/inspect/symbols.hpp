// symbols: the names of places in the code.
//
// With libdw (meson option `symbols`) these are all functions, inlined ones too, with
// their lines, as far as the files on the disk say. Without it, and for a file that has
// been deleted or replaced since it was loaded, they are what the dynamic linker knows:
// exported functions. tools/vigil-symbols names the rest afterwards.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace VIGIL_DETAIL {

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

// A C++ name as in the source; any other as it is.
std::string demangled(const char* name);

// Whose function it is. All but the program's tell nothing to those who look for a fault.
enum class code_owner : std::uint8_t {
  program,
  vigil,
  call_of_std,  // a function of the standard library that only calls another
};

code_owner owner_of(const code_function& f) noexcept;

// Whether none of the functions of the place is the program's.
bool is_library(const code_place& p) noexcept;

// Names places, each once. For one thread at a time. Opens files.
class symbol_reader {
 public:
  VIGIL_FOR_IO symbol_reader();
  VIGIL_FOR_IO ~symbol_reader();
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

struct code_module {
  char path[1024] = {};       // absolute, if the system says so
  std::uintptr_t offset = 0;  // of the place, in the file's own addresses
  std::uintptr_t loaded = 0;  // where the file's addresses begin
  // The part with the place: all of the file, or its code if there are gaps between its
  // segments.
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;   // 0: unknown
  bool is_program = false;  // and no library
};

// Finds the file that a place is in. False if it is in none. Async-signal-safe.
bool find_module(std::uintptr_t place, code_module& out) noexcept;

// The number by which the linker tells builds apart (--build-id).
struct build_id {
  static constexpr std::size_t most = 32;
  // How many bytes of notes are looked at, in the order of the segments. A real file has
  // a few hundred; a broken one may claim gigabytes, of which each twelve that are zero
  // are a note. Behind so many a file counts as one without a number.
  static constexpr std::size_t most_notes = std::size_t{64} << 10;

  std::size_t size = 0;  // 0: the file has none
  unsigned char bytes[most];
};

// Reads it from the file's notes in memory. Async-signal-safe.
build_id build_id_of(const code_module& m) noexcept;

}  // namespace VIGIL_DETAIL
