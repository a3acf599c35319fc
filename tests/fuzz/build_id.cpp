// Covers: src/inspect/symbols.cpp
//
// The notes of a broken file in memory, amid addresses that cannot be read. The build's
// number is the one that a second reader finds, which knows the end of the file.
#include "fuzz/input.hpp"
#include "inspect/symbols.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <elf.h>
#include <sys/mman.h>

namespace {

using namespace vigil::detail;
using fuzz::expect;

constexpr std::size_t page = 4096;

// How far no address on either side can be read. A place in the file that is wrong would
// otherwise lead to memory of the program, of which the second reader knows nothing.
constexpr std::size_t around = std::size_t{1} << 39;

char* file_memory() {
  static char* const begin = [] {
    void* const at = ::mmap(
        nullptr, 2 * around + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(at != MAP_FAILED, "there is memory");
    char* const middle = static_cast<char*>(at) + around;
    expect(::mprotect(middle, page, PROT_READ | PROT_WRITE) == 0, "that can be used");
    return middle;
  }();
  return begin;
}

// The second reader. Places are the file's own addresses, modulo 2^64 as in the first.
class model {
 public:
  explicit model(std::string_view file) : file_(file) {}

  std::string build() const {
    const auto head = read<Elf64_Ehdr>(0);
    if (!head || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return {};
    if (head->e_phentsize != sizeof(Elf64_Phdr)) return {};
    std::uint64_t left = build_id::most_notes;
    for (std::uint64_t i = 0; i < head->e_phnum; ++i) {
      const auto segment = read<Elf64_Phdr>(head->e_phoff + i * sizeof(Elf64_Phdr));
      if (!segment) return {};
      if (segment->p_type != PT_NOTE) continue;
      const std::uint64_t size = std::min<std::uint64_t>(segment->p_memsz, left);
      if (const auto found = note_in(segment->p_vaddr, size)) return *found;
      left -= size;
    }
    return {};
  }

 private:
  std::optional<std::string_view> bytes(std::uint64_t at, std::uint64_t size) const {
    if (at > file_.size() || size > file_.size() - at) return std::nullopt;
    return file_.substr(at, size);
  }

  template <class T>
  std::optional<T> read(std::uint64_t at) const {
    const auto from = bytes(at, sizeof(T));
    if (!from) return std::nullopt;
    T value;
    std::memcpy(&value, from->data(), sizeof value);
    return value;
  }

  static std::uint64_t padded(std::uint64_t n) { return (n + 3) / 4 * 4; }

  std::optional<std::string> note_in(std::uint64_t at, std::uint64_t left) const {
    while (left >= sizeof(Elf64_Nhdr)) {
      const auto note = read<Elf64_Nhdr>(at);
      if (!note) return std::nullopt;
      const std::uint64_t name = at + sizeof *note;
      const std::uint64_t description = name + padded(note->n_namesz);
      const bool is_build = note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
                            bytes(name, 4) == std::string_view("GNU", 4);
      if (is_build) {
        const auto found =
            bytes(description, std::min<std::uint64_t>(note->n_descsz, build_id::most));
        return found ? std::optional(std::string(*found)) : std::nullopt;
      }
      const std::uint64_t size = sizeof *note + padded(note->n_namesz) + padded(note->n_descsz);
      if (size > left) return std::nullopt;
      at += size;
      left -= size;
    }
    return std::nullopt;
  }

  const std::string_view file_;
};

void check(std::string_view bytes) {
  char* const memory = file_memory();
  std::memset(memory, 0, page);
  // A file that is shorter than its head ends where the memory ends.
  const std::size_t size = bytes.size() < sizeof(Elf64_Ehdr) ? bytes.size() : page;
  char* const file = memory + page - size;
  bytes.copy(file, size);
  code_module m;
  m.loaded = reinterpret_cast<std::uintptr_t>(file);
  const build_id found = build_id_of(m);
  expect(found.size <= build_id::most, "a build's number has a bound");
  const std::string_view own(reinterpret_cast<const char*>(found.bytes), found.size);
  expect(own == model({file, size}).build(), "the build's number");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  check(in.rest());
  return 0;
}
