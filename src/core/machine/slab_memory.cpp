#include "core/machine/slab_memory.hpp"

#include "core/machine/sanitizer.hpp"
#include "core/machine/stack.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// Not in any libc header yet.
constexpr int madv_guard_install = 102;

// Stands for the process itself where a pidfd is expected (Linux 6.14).
constexpr int pidfd_self = -10000;

std::atomic<bool> ranges_are_refused{false};

bool mprotect_is_forced() noexcept {
  static const bool forced = [] {
    const char* const wish = std::getenv("VIGIL_STACK_GUARD");
    return wish != nullptr && std::strcmp(wish, "mprotect") == 0;
  }();
  return forced;
}

// Does madvise() for several ranges in one call, at half the price of a call for each.
// Returns how many bytes of them were done, from the first on. Valgrind does not know the
// call, and says so.
std::size_t advise(const ::iovec* ranges, std::size_t count, int advice) noexcept {
  // ordering: a hint; a call too many is refused again.
  if (ranges_are_refused.load(std::memory_order_relaxed) || mprotect_is_forced() ||
      RUNNING_ON_VALGRIND != 0) {
    return 0;
  }
  const long done = ::syscall(SYS_process_madvise, pidfd_self, ranges, count, advice, 0);
  if (done > 0) return static_cast<std::size_t>(done);
  // These come from an older kernel or a filter. Other errors are about these ranges.
  if (errno == ENOSYS || errno == EPERM || errno == EBADF) {
    ranges_are_refused.store(true, std::memory_order_relaxed);  // ordering: as above
  }
  return 0;
}

// Tries the first guard of the process. Emulators of user mode say yes to advice that
// they do not know, and do nothing. The kernel can write a random byte into ordinary
// memory; a guard makes it refuse, where a write of the program's own would be a fault.
// A direct call, because later C libraries write the byte themselves.
bool guards_work(std::byte* first) noexcept {
  static const bool work =
      ::syscall(SYS_getrandom, first, 1, GRND_INSECURE) == -1 && errno == EFAULT;
  return work;
}

// Returns how many guards it made.
std::size_t guard_by_advice(std::byte* first, std::size_t stride, std::size_t count) noexcept {
  if (mprotect_is_forced()) return 0;
  std::size_t made = 0;
  if (count > 1) {
    constexpr std::size_t at_once = 16;
    ::iovec guards[at_once];
    const std::size_t n = std::min(count, at_once);
    for (std::size_t i = 0; i < n; ++i)
      guards[i] = {first + i * stride, stack_guard_size};
    made = advise(guards, n, madv_guard_install) / stack_guard_size;
  }
  if (made == 0 && ::madvise(first, stack_guard_size, madv_guard_install) == 0) made = 1;
  return made != 0 && guards_work(first) ? made : 0;
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

std::size_t install_guards(std::byte* first, std::size_t stride, std::size_t count) noexcept {
  const std::size_t made = guard_by_advice(first, stride, count);
  if (made != 0) return made;
  return ::mprotect(first, stack_guard_size, PROT_NONE) == 0 ? 1 : 0;
}

void give_back_memory(const ::iovec* ranges, std::size_t count) noexcept {
  std::size_t done = advise(ranges, count, MADV_DONTNEED);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = ranges[i].iov_len;
    // Refused for locked memory, which the program wishes to keep.
    if (done < size) ::madvise(ranges[i].iov_base, size, MADV_DONTNEED);
    done -= std::min(done, size);
  }
}

}  // namespace VIGIL_DETAIL
