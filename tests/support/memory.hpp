// The memory of the process, and how many mappings it may have.
#pragma once

#include <cstddef>
#include <cstdio>

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
