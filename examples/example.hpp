// Shared by the examples: their entry point, and a few figures about the process.
//
// example_main(body) runs the body as the main fiber: on real time, or, with
// VIGIL_EXAMPLE_VIRTUAL=1 in the environment, on virtual time, where the same program
// prints the same text at once. The tests of the examples do that.
#pragma once

#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace example {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool under_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool under_sanitizer = true;
#else
inline constexpr bool under_sanitizer = false;
#endif
#else
inline constexpr bool under_sanitizer = false;
#endif

inline bool is_virtual() {
  const char* const wish = std::getenv("VIGIL_EXAMPLE_VIRTUAL");
  return wish != nullptr && std::strcmp(wish, "1") == 0;
}

// Returns a number of /proc/self/status, "VmRSS" or "Threads"; 0 if it is not there.
inline std::int64_t of_process(const char* key) {
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) return 0;
  const std::size_t length = std::strlen(key);
  char line[256];
  std::int64_t value = 0;
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::strncmp(line, key, length) != 0 || line[length] != ':') continue;
    value = std::strtoll(line + length + 1, nullptr, 10);
    break;
  }
  std::fclose(status);
  return value;
}

// Returns resident memory and page tables of the process, in KiB.
inline std::int64_t memory_kib() {
  return of_process("VmRSS") + of_process("VmPTE");
}

// Returns whether the kernel guards a stack without splitting its mapping, by trying one
// page. VIGIL_STACK_GUARD=mprotect turns that off, as in the library.
inline bool kernel_guards_cheaply() {
  const char* const wish = std::getenv("VIGIL_STACK_GUARD");
  if (wish != nullptr && std::strcmp(wish, "mprotect") == 0) return false;
  constexpr int guard_install = 102;  // MADV_GUARD_INSTALL, not in older headers
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  // Emulators say yes to it and do nothing; the kernel can then write there.
  const bool works = ::madvise(page, 4096, guard_install) == 0 &&
                     ::syscall(SYS_getrandom, page, 1, GRND_NONBLOCK) == -1;
  ::munmap(page, 4096);
  return works;
}

// Returns how many of `wanted` fibers can sleep at once here: 20 000 without
// MADV_GUARD_INSTALL, because each guarded stack then splits a mapping, and 10 000 under
// a sanitizer. Says so on standard error if that is fewer.
inline std::uint64_t sleepers_possible(std::uint64_t wanted) {
  if (under_sanitizer && wanted > 10'000) {
    std::fputs("under a sanitizer: 10 000 fibers\n", stderr);
    return 10'000;
  }
  if (wanted > 20'000 && !kernel_guards_cheaply()) {
    std::fputs("this kernel has no MADV_GUARD_INSTALL (Linux 6.13): 20 000 fibers\n", stderr);
    return 20'000;
  }
  return wanted;
}

inline std::string dump_text() {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const memory = open_memstream(&text, &size);
  vigil::debug::dump(memory);
  std::fclose(memory);
  std::string copy(text, size);
  std::free(text);
  return copy;
}

// Writes 1234567 as "1 234 567".
inline std::string grouped(std::uint64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t i = text.size(); i > 3; i -= 3)
    text.insert(i - 3, 1, ' ');
  return text;
}

}  // namespace example

template <class F>
int example_main(const vigil::options& settings, F&& body) {
  // Prints a line at a time, even into a pipe.
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  if (!example::is_virtual()) return vigil::run(settings, body);
  vigil::testing::virtual_options how;
  how.runtime = settings;
  return vigil::testing::run_virtual(how, body);
}

template <class F>
int example_main(F&& body) {
  return example_main(vigil::options{}, std::forward<F>(body));
}
