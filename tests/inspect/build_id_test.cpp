// The number of a build, among the notes of a file in memory.
#include "inspect/symbols.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <doctest/doctest.h>

#include <elf.h>
#include <link.h>

namespace VIGIL_DETAIL {
namespace {

struct note {
  ElfW(Nhdr) head = {.n_namesz = 4, .n_descsz = 4, .n_type = 0};
  char owner[4] = {'G', 'N', 'U'};
  char description[4] = {'a', 'b', 'c', 'd'};
};

// A file with one segment, which has other notes and then that with the number.
template <std::size_t n>
struct file_of_notes {
  ElfW(Ehdr) head = {};
  ElfW(Phdr) segment = {};
  note others[n];
  note last;

  file_of_notes() {
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_phoff = offsetof(file_of_notes, segment);
    head.e_phentsize = sizeof segment;
    head.e_phnum = 1;
    segment.p_type = PT_NOTE;
    segment.p_vaddr = offsetof(file_of_notes, others);
    segment.p_memsz = sizeof others + sizeof last;
    last.head.n_type = NT_GNU_BUILD_ID;
  }

  std::uintptr_t place() const { return reinterpret_cast<std::uintptr_t>(this); }

  std::size_t found() const {
    code_module m;
    m.loaded = place();
    return build_id_of(m).size;
  }
};

TEST_SUITE("build id") {
  TEST_CASE("it is found behind another note, wherever the segment ends") {
    file_of_notes<1> file;
    CHECK(file.found() == 4);
    for (const std::size_t size : {SIZE_MAX - file.place(), SIZE_MAX, 2 * sizeof(note) - 1}) {
      file.segment.p_memsz = size;
      CHECK(file.found() == 4);
    }
    file.segment.p_memsz = sizeof(note);
    CHECK(file.found() == 0);
  }

  // A broken file may claim gigabytes of notes.
  TEST_CASE("it is looked for in 64 KiB of notes") {
    const auto file = std::make_unique<file_of_notes<build_id::most_notes / sizeof(note) + 1>>();
    CHECK(file->found() == 0);
    file->segment.p_vaddr += sizeof(note);
    CHECK(file->found() == 4);
  }
}

}  // namespace
}  // namespace VIGIL_DETAIL
