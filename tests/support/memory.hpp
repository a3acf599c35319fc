// The memory of the process.
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

}  // namespace vigil::testing_support
