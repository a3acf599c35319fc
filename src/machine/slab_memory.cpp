#include "machine/slab_memory.hpp"

#include "machine/stack.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

namespace vigil::internal {
namespace {

// In no libc header yet.
constexpr int madv_guard_install = 102;

std::atomic<bool> latest_is_madvise{false};

bool mprotect_is_forced() noexcept {
  static const bool forced = [] {
    const char* const wish = std::getenv("VIGIL_STACK_GUARD");
    return wish != nullptr && std::strcmp(wish, "mprotect") == 0;
  }();
  return forced;
}

}  // namespace

std::byte* map_memory(std::size_t size) noexcept {
  void* const at = ::mmap(
      nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  // One touched page must not cost two megabytes. Refused only by kernels
  // without huge pages.
  ::madvise(at, size, MADV_NOHUGEPAGE);
  return static_cast<std::byte*>(at);
}

bool unmap_memory(std::byte* at, std::size_t size) noexcept {
  return ::munmap(at, size) == 0;
}

bool install_guard(std::byte* at) noexcept {
  const bool by_madvise =
      !mprotect_is_forced() && ::madvise(at, stack_guard_size, madv_guard_install) == 0;
  if (!by_madvise && ::mprotect(at, stack_guard_size, PROT_NONE) != 0) return false;
  // ordering: a statistic; nothing hangs on it.
  latest_is_madvise.store(by_madvise, std::memory_order_relaxed);
  return true;
}

bool latest_guard_is_madvise() noexcept {
  // ordering: a statistic; nothing hangs on it.
  return latest_is_madvise.load(std::memory_order_relaxed);
}

void give_back_memory(std::byte* at, std::size_t size) noexcept {
  // Refused for locked memory, which stays by the wish of the program.
  ::madvise(at, size, MADV_DONTNEED);
}

}  // namespace vigil::internal
