#include "inspect/foreign_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/uio.h>
#include <unistd.h>

namespace vigil::inline VIGIL_ABI::detail {

bool read_memory(const void* from, void* to, std::size_t size) noexcept {
  const iovec local{to, size};
  const iovec remote{const_cast<void*>(from), size};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

bool read_loaded(const void* from, void* to, std::size_t size) noexcept {
  errno = 0;
  if (read_memory(from, to, size)) return true;
  // Less than all may have been copied, which is no error.
  if (errno == 0 || errno == EFAULT || errno == ENOMEM) return false;
  std::memcpy(to, from, size);
  return true;
}

bool read_text(const char* from, char* to, std::size_t room) noexcept {
  constexpr std::uintptr_t page = 4096;
  std::size_t done = 0;
  while (done + 1 < room) {
    // Not past the end of a page: the next one may not be there.
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(from) + done;
    const std::size_t piece = std::min<std::size_t>(page - at % page, room - 1 - done);
    if (!read_loaded(from + done, to + done, piece)) return false;
    if (std::find(to + done, to + done + piece, '\0') != to + done + piece) return true;
    done += piece;
  }
  to[done] = '\0';
  return true;
}

}  // namespace vigil::inline VIGIL_ABI::detail
