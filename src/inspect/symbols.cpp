#include "inspect/symbols.hpp"

#include "inspect/debug_files.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#define VIGIL_TEXT_OF(x) #x
#define VIGIL_TEXT(x) VIGIL_TEXT_OF(x)

namespace vigil::inline VIGIL_ABI::detail {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
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
bool find_map(std::uintptr_t place, const link_map*& out) noexcept {
  dl_find_object found;
  if (::_dl_find_object(reinterpret_cast<void*>(place), &found) != 0) return false;
  out = found.dlfo_link_map;
  return true;
}
#else
// Takes the loader's lock.
bool find_map(std::uintptr_t place, const link_map*& out) noexcept {
  Dl_info info;
  void* map = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(place), &info, &map, RTLD_DL_LINKMAP) == 0) return false;
  out = static_cast<const link_map*>(map);
  return true;
}
#endif

}  // namespace

void note_program_path() noexcept {
  path_of_program();
}

bool find_module(std::uintptr_t place,
                 char* path,
                 std::size_t room,
                 std::uintptr_t& offset) noexcept {
  const link_map* map = nullptr;
  if (!find_map(place, map)) return false;
  const char* const name = map->l_name[0] != '\0' ? map->l_name : path_of_program();
  const std::size_t n = std::min(std::strlen(name), room - 1);
  std::memcpy(path, name, n);
  path[n] = '\0';
  offset = place - map->l_addr;
  return true;
}

symbol_reader::symbol_reader() : files_(std::make_unique<debug_files>()) {}

symbol_reader::~symbol_reader() = default;

const code_place& symbol_reader::at(std::uintptr_t place) {
  const auto [found, is_new] = known_.try_emplace(place);
  code_place& out = found->second;
  if (!is_new) return out;
  files_->name(place, out.functions);
  char path[1024];
  if (find_module(place, path, sizeof path, out.offset)) {
    out.module = path;
  } else {
    out.offset = place;
  }
#if !VIGIL_HAS_LIBDW
  // Takes the loader's lock.
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(place), &info) != 0 && info.dli_sname != nullptr) {
    out.functions.push_back({demangled(info.dli_sname), "", 0});
  }
#endif
  if (out.functions.empty()) out.functions.emplace_back();
  return out;
}

}  // namespace vigil::inline VIGIL_ABI::detail
