#include "core/base/foreign_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/uio.h>
#include <unistd.h>

namespace VIGIL_DETAIL {

namespace {

enum class copy_result : std::uint8_t { whole, gone, forbidden };

copy_result copy_by_kernel(const void* from, void* to, std::size_t size) noexcept {
  const iovec local{to, size};
  const iovec remote{const_cast<void*>(from), size};
  const ssize_t n = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  if (n == static_cast<ssize_t>(size)) return copy_result::whole;
  return n >= 0 || errno == EFAULT || errno == ENOMEM ? copy_result::gone : copy_result::forbidden;
}

}  // namespace

bool read_memory(const void* from, void* to, std::size_t size) noexcept {
  return copy_by_kernel(from, to, size) == copy_result::whole;
}

bool read_loaded(const void* from, void* to, std::size_t size) noexcept {
  const copy_result result = copy_by_kernel(from, to, size);
  if (result == copy_result::forbidden) std::memcpy(to, from, size);
  return result != copy_result::gone;
}

bool read_text(const char* from, char* to, std::size_t room) noexcept {
  constexpr std::uintptr_t page = 4096;
  std::size_t done = 0;
  while (done + 1 < room) {
    // Not past the end of a page: the next one may not be there.
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(from) + done;
    const std::size_t piece = std::min<std::size_t>(page - at % page, room - 1 - done);
    switch (copy_by_kernel(from + done, to + done, piece)) {
      case copy_result::whole:
        break;
      case copy_result::gone:
        return false;
      case copy_result::forbidden: {
        const std::size_t size = ::strnlen(from, room - 1);
        std::memcpy(to, from, size);
        to[size] = '\0';
        return true;
      }
    }
    if (std::find(to + done, to + done + piece, '\0') != to + done + piece) return true;
    done += piece;
  }
  to[done] = '\0';
  return true;
}

}  // namespace VIGIL_DETAIL
