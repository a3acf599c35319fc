// The memory of the process, and how many mappings it may have.
#pragma once

#include <cstddef>
#include <cstdio>

#include <sys/mman.h>
#include <sys/resource.h>
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

// As many as a test can use up in a second, and with little memory.
constexpr std::size_t reachable_mappings = 100'000;

}  // namespace vigil::testing_support
