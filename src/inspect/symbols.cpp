#include "inspect/symbols.hpp"

#include "core/base/foreign_memory.hpp"
#include "inspect/debug_files.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#define VIGIL_TEXT_OF(x) #x
#define VIGIL_TEXT(x) VIGIL_TEXT_OF(x)

namespace VIGIL_DETAIL {

std::string demangled(const char* name) {
  int status = 0;
  // Without the prefix it would be read as a type's: a C function `f` would be `float`.
  const bool is_mangled = std::string_view(name).starts_with("_Z");
  const std::unique_ptr<char, decltype(&std::free)> text(
      is_mangled ? abi::__cxa_demangle(name, nullptr, nullptr, &status) : nullptr, &std::free);
  std::string out = text != nullptr ? text.get() : name;
  // The compiler's note that it has changed the parameters.
  out.resize(std::min(out.find(" [clone "), out.size()));
  // The inline namespace is of no use to a reader.
  constexpr std::string_view abi = "::" VIGIL_TEXT(VIGIL_ABI) "::";
  for (std::size_t at = 0; (at = out.find(abi, at)) != std::string::npos;)
    out.erase(at, abi.size() - 2);
  return out;
}

namespace {

// The path of the program, for which the dynamic linker has no name.
struct program_path {
  program_path() noexcept {
    const ssize_t n = ::readlink("/proc/self/exe", text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
  }

  char text[1024];
};

const char* path_of_program() noexcept {
  static const program_path program;
  return program.text;
}

// glibc's since 2.35; what it fills in, as <dlfcn.h> there declares it.
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
const link_map* find_map(std::uintptr_t place, code_module& out) noexcept {
  dl_find_object found;
  if (::_dl_find_object(reinterpret_cast<void*>(place), &found) != 0) return nullptr;
  out.begin = reinterpret_cast<std::uintptr_t>(found.dlfo_map_start);
  out.end = reinterpret_cast<std::uintptr_t>(found.dlfo_map_end);
  return found.dlfo_link_map;
}
#else
// Takes the loader's lock.
const link_map* find_map(std::uintptr_t place, code_module& out) noexcept {
  Dl_info info;
  void* map = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(place), &info, &map, RTLD_DL_LINKMAP) == 0) return nullptr;
  out.begin = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  return static_cast<const link_map*>(map);
}
#endif

// The lines of /proc/self/maps, without stdio.
class mapping_lines {
 public:
  mapping_lines() noexcept : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}

  ~mapping_lines() {
    if (file_ >= 0) ::close(file_);
  }

  mapping_lines(const mapping_lines&) = delete;
  mapping_lines& operator=(const mapping_lines&) = delete;

  // False at the end. A line that does not fit is cut.
  bool next(char* line, std::size_t room) noexcept {
    std::size_t size = 0;
    for (;;) {
      if (at_ == filled_ && !fill()) return false;
      const char c = bytes_[at_++];
      if (c == '\n') break;
      if (size + 1 < room) line[size++] = c;
    }
    line[size] = '\0';
    return true;
  }

 private:
  bool fill() noexcept {
    const ssize_t n = file_ < 0 ? 0 : ::read(file_, bytes_, sizeof bytes_);
    at_ = 0;
    filled_ = n > 0 ? static_cast<std::size_t>(n) : 0;
    return filled_ != 0;
  }

  const int file_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  char bytes_[512];
};

std::uintptr_t read_hex(const char*& text) noexcept {
  std::uintptr_t n = 0;
  for (;; ++text) {
    const char c = *text;
    if (c >= '0' && c <= '9') {
      n = n * 16 + static_cast<std::uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      n = n * 16 + static_cast<std::uintptr_t>(c - 'a' + 10);
    } else {
      return n;
    }
  }
}

// The loader knows a file by the name under which it was opened, which may be relative to
// a working directory of then. The kernel knows the whole path.
[[gnu::noinline]] void find_absolute_path(std::uintptr_t place, code_module& out) noexcept {
  char line[sizeof out.path + 128];
  for (mapping_lines lines; lines.next(line, sizeof line);) {
    const char* text = line;
    const std::uintptr_t begin = read_hex(text);
    if (*text++ != '-' || place < begin || place >= read_hex(text)) continue;
    const char* const path = std::strchr(text, '/');
    if (path != nullptr) std::strncpy(out.path, path, sizeof out.path - 1);
    return;
  }
}

}  // namespace

void note_program_path() noexcept {
  path_of_program();
}

bool find_module(std::uintptr_t place, code_module& out) noexcept {
  // The file may be closed meanwhile, and its link_map freed.
  link_map map;
  const link_map* const at = find_map(place, out);
  if (at == nullptr || !read_loaded(at, &map, sizeof map)) return false;
  if (!read_text(map.l_name, out.path, sizeof out.path)) return false;
  out.is_program = out.path[0] == '\0';
  if (out.is_program) {
    static_assert(sizeof program_path::text <= sizeof out.path);
    const char* const program = path_of_program();
    std::memcpy(out.path, program, std::strlen(program) + 1);
  }
  if (out.path[0] != '/') find_absolute_path(place, out);
  out.loaded = map.l_addr;
  out.offset = place - map.l_addr;
  // If it is still there, so was all that was read.
  return find_map(place, out) == at;
}

namespace {

// The description of the note with the build's number in a segment of notes.
bool find_build_id(std::uintptr_t at, std::size_t left, build_id& out) noexcept {
  const auto padded = [](std::size_t n) { return (n + 3) & ~std::size_t{3}; };
  while (left >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    if (!read_loaded(reinterpret_cast<const void*>(at), &note, sizeof note)) return false;
    const std::uintptr_t name = at + sizeof note;
    const std::uintptr_t description = name + padded(note.n_namesz);
    char owner[4] = {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof owner &&
        read_loaded(reinterpret_cast<const void*>(name), owner, sizeof owner) &&
        std::memcmp(owner, "GNU", sizeof owner) == 0) {
      const std::size_t n = std::min<std::size_t>(note.n_descsz, build_id::most);
      if (!read_loaded(reinterpret_cast<const void*>(description), out.bytes, n)) return false;
      out.size = n;
      return true;
    }
    const std::size_t size = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (size > left) return false;
    at += size;
    left -= size;
  }
  return false;
}

struct program_headers {
  std::uintptr_t at = 0;
  std::size_t count = 0;  // 0: not found
};

// The kernel has told where the program's are. A library's first bytes lie where its
// addresses begin; the loader may tell of its code alone.
program_headers headers_of(const code_module& m) noexcept {
  if (m.is_program) return {::getauxval(AT_PHDR), ::getauxval(AT_PHNUM)};
  ElfW(Ehdr) head;
  if (!read_loaded(reinterpret_cast<const void*>(m.loaded), &head, sizeof head) ||
      std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(ElfW(Phdr))) {
    return {};
  }
  return {m.loaded + head.e_phoff, head.e_phnum};
}

}  // namespace

build_id build_id_of(const code_module& m) noexcept {
  build_id out;
  const program_headers headers = headers_of(m);
  std::size_t left = build_id::most_notes;
  for (std::size_t i = 0; i < headers.count; ++i) {
    ElfW(Phdr) segment;
    const std::uintptr_t at = headers.at + i * sizeof segment;
    if (!read_loaded(reinterpret_cast<const void*>(at), &segment, sizeof segment)) return out;
    if (segment.p_type != PT_NOTE) continue;
    const std::size_t size = std::min<std::size_t>(segment.p_memsz, left);
    if (find_build_id(m.loaded + segment.p_vaddr, size, out)) return out;
    left -= size;
  }
  return out;
}

namespace {

// Knows exported functions alone. Takes the loader's lock, but the file may be closed
// right after.
void name_exported(std::uintptr_t place, std::vector<code_function>& out) {
  constexpr std::size_t longest = std::size_t{1} << 20;
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(place), &info) == 0 || info.dli_sname == nullptr) return;
  std::string name;
  do {
    name.resize(name.empty() ? 1024 : 2 * name.size());
    if (!read_text(info.dli_sname, name.data(), name.size())) return;
  } while (std::strlen(name.c_str()) + 1 == name.size() && name.size() < longest);
  out.push_back({demangled(name.c_str()), "", 0});
}

}  // namespace

symbol_reader::symbol_reader() : files_(std::make_unique<debug_files>()) {}

symbol_reader::~symbol_reader() = default;

namespace {

// Whether an operator's own name begins at `at`: its sign may be a bracket, and the type
// to which it converts may be of another namespace.
bool begins_operator(std::string_view name, std::size_t at) noexcept {
  constexpr std::string_view word = "operator";
  if (!name.substr(at).starts_with(word)) return false;
  const auto is_in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const std::size_t end = at + word.size();
  return (at == 0 || !is_in_word(name[at - 1])) && (end == name.size() || !is_in_word(name[end]));
}

// The name of a function that is made of a template begins with the type of its result:
// the function's own follows the last space that is in no brackets, before the
// parameters.
std::string_view own_name(std::string_view name) noexcept {
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const std::string_view rest = name.substr(i);
    const bool is_part = rest.starts_with("(anonymous namespace)") || rest.starts_with("(auto)");
    if (c == '(' && depth == 0 && !is_part) break;
    if (c == 'o' && depth == 0 && begins_operator(name, i)) break;
    if (c == '<' || c == '(' || c == '{') ++depth;
    if (c == '>' || c == ')' || c == '}') --depth;
    if (c == ' ' && depth == 0) begin = i + 1;
  }
  return name.substr(begin);
}

bool is_call_of_std(std::string_view name) noexcept {
  constexpr std::string_view calls[] = {"__invoke",
                                        "invoke<",
                                        "invoke_r<",
                                        "__apply_impl<",
                                        "apply<",
                                        "_Function_handler<",
                                        "_M_invoke",
                                        "function<",
                                        "move_only_function<",
                                        "operator()",
                                        "_Bind",
                                        "thread::_",
                                        "__function::"};
  return std::any_of(
      std::begin(calls), std::end(calls), [name](auto c) { return name.starts_with(c); });
}

}  // namespace

code_owner owner_of(const code_function& f) noexcept {
  std::string_view name = own_name(f.name);
  if (name.starts_with("vigil::")) return code_owner::vigil;
  bool is_std = name.starts_with("std::");
  if (is_std) {
    name.remove_prefix(name.starts_with("std::__1::") ? 10 : 5);  // libc++'s are in __1
  } else if (name.substr(0, name.find_first_of("<(")).find("::") == name.npos) {
    // A function that is made for a lambda is named without its namespace.
    if (f.file.find("/include/vigil/") != f.file.npos) return code_owner::vigil;
    is_std = f.file.find("/include/c++/") != f.file.npos;
  }
  return is_std && is_call_of_std(name) ? code_owner::call_of_std : code_owner::program;
}

bool is_library(const code_place& p) noexcept {
  return std::all_of(p.functions.begin(), p.functions.end(), [](const code_function& f) {
    return owner_of(f) != code_owner::program;
  });
}

const code_place& symbol_reader::at(std::uintptr_t place) {
  const auto [found, is_new] = known_.try_emplace(place);
  code_place& out = found->second;
  if (!is_new) return out;
  files_->name(place, out.functions);
  code_module m;
  if (find_module(place, m)) {
    out.module = m.path;
    out.offset = m.offset;
  } else {
    out.offset = place;
  }
  // libdw reads files on the disk: this one may be gone since it was loaded, or replaced.
  if (out.functions.empty()) name_exported(place, out.functions);
  if (out.functions.empty()) out.functions.emplace_back();
  return out;
}

}  // namespace VIGIL_DETAIL
