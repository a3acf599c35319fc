// The memory of the process, and how many mappings it may have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace vigil::testing_support {

// Resident bytes; 0 if the kernel does not report them.
inline std::size_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  std::size_t whole = 0;
  std::size_t resident = 0;
  const int got = std::fscanf(file, "%zu %zu", &whole, &resident);
  std::fclose(file);
  return got == 2 ? resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

// Whether RLIMIT_AS and RLIMIT_DATA are in force, tried once in a child: emulators take
// them for their own and do nothing.
inline bool limits_are_kept() {
  constexpr rlim_t little = 64 * 1024;
  constexpr std::size_t much = std::size_t{64} << 20;
  static const bool kept = [] {
    for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
      const pid_t child = ::fork();
      if (child == 0) {
        rlimit value{};
        ::getrlimit(resource, &value);
        value.rlim_cur = little;
        ::setrlimit(resource, &value);
        const int access = PROT_READ | PROT_WRITE;
        void* const at = ::mmap(nullptr, much, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ::_exit(at == MAP_FAILED ? 0 : 1);
      }
      int status = 1;
      if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) return false;
    }
    return true;
  }();
  return kept;
}

inline constexpr const char* no_limits = "skipped: RLIMIT_AS and RLIMIT_DATA are not in force here";

// vm.max_map_count, which is 65 530 unless the distribution has raised it; 0 if it is not
// known.
inline std::size_t most_mappings() {
  std::FILE* const file = std::fopen("/proc/sys/vm/max_map_count", "r");
  if (file == nullptr) return 0;
  std::size_t most = 0;
  const int got = std::fscanf(file, "%zu", &most);
  std::fclose(file);
  return got == 1 ? most : 0;
}

// Whether the guard of a stack is a mapping of its own: before Linux 6.13, in emulators
// that only say yes to MADV_GUARD_INSTALL, and where it is asked for.
inline bool guards_are_mappings() {
  static const bool are = [] {
    const char* const wish = std::getenv("VIGIL_STACK_GUARD");
    if (wish != nullptr && std::strcmp(wish, "mprotect") == 0) return true;
    constexpr std::size_t size = 64 * 1024;  // a page of any machine
    constexpr int guard_install = 102;       // MADV_GUARD_INSTALL
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (at == MAP_FAILED) return true;
    const bool guarded = ::madvise(at, size, guard_install) == 0 &&
                         ::syscall(SYS_getrandom, at, 1, GRND_NONBLOCK) == -1;
    ::munmap(at, size);
    return !guarded;
  }();
  return are;
}

// `wanted`, or as many stacks as there may be at once where each takes two mappings.
inline int stacks_at_once(int wanted) {
  if (!guards_are_mappings()) return wanted;
  return std::min(wanted, static_cast<int>(most_mappings() / 4));
}

// As many as a test can use up in a second, and with little memory.
constexpr std::size_t reachable_mappings = 100'000;

}  // namespace vigil::testing_support
