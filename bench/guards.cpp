// The cost of a guard below each stack, by its size: a marker for each of its pages in
// the page table (MADV_GUARD_INSTALL), and the page tables for more address space. The
// stacks are made as the runtime makes them, 64 in a mapping, without the runtime.
#include "harness.hpp"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <sys/mman.h>

namespace bench {

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t stack_size = 128 * kib;
constexpr std::size_t stacks_per_slab = 64;
constexpr int madv_guard_install = 102;  // in no libc header yet

// Returns a line of /proc/self/status, in bytes.
double status_bytes(const char* line) {
  std::FILE* const f = std::fopen("/proc/self/status", "r");
  if (f == nullptr) return 0;
  char text[256];
  double found = 0;
  while (std::fgets(text, sizeof text, f) != nullptr) {
    if (std::strncmp(text, line, std::strlen(line)) == 0)
      std::sscanf(text + std::strlen(line), "%lf", &found);
  }
  std::fclose(f);
  return found * 1024;
}

}  // namespace

void guards(report& out) {
  const std::size_t n = out.is_asked_for() ? 102'400 : 6'400;
  for (const std::size_t guard : {4 * kib, 64 * kib, 256 * kib, 272 * kib, 1024 * kib}) {
    const std::string what = std::to_string(guard / kib) + " KiB";
    const std::size_t stride = guard + stack_size;
    const std::size_t slab = stride * stacks_per_slab;
    const double tables = status_bytes("VmPTE:");
    const double resident = status_bytes("VmRSS:");
    const nanos begin = cpu_time();
    std::vector<std::byte*> slabs;
    for (std::size_t i = 0; i < n / stacks_per_slab; ++i) {
      void* const at = ::mmap(nullptr,
                              slab,
                              PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                              -1,
                              0);
      if (at == MAP_FAILED) break;
      slabs.push_back(static_cast<std::byte*>(at));
      ::madvise(at, slab, MADV_NOHUGEPAGE);
      for (std::size_t k = 0; k < stacks_per_slab; ++k) {
        std::byte* const bottom = slabs.back() + k * stride;
        if (::madvise(bottom, guard, madv_guard_install) != 0) {
          for (std::byte* const each : slabs)
            ::munmap(each, slab);
          out.add("guards: the kernel has no MADV_GUARD_INSTALL", 0, "");
          return;
        }
        bottom[stride - 1] = std::byte{1};  // the page that every fiber touches
      }
    }
    const nanos made = cpu_time();
    const auto each = [n](double amount) { return amount / static_cast<double>(n); };
    out.add("page tables per stack, guard of " + what,
            each(status_bytes("VmPTE:") - tables) / 1024,
            "KiB");
    out.add("resident per stack, guard of " + what,
            each(status_bytes("VmRSS:") - resident) / 1024,
            "KiB",
            "without page tables");
    for (std::byte* const at : slabs)
      ::munmap(at, slab);
    out.add("mapped, guarded and touched, guard of " + what,
            each(static_cast<double>(made - begin)),
            "ns");
    out.add("given back, guard of " + what, each(static_cast<double>(cpu_time() - made)), "ns");
  }
}

}  // namespace bench
