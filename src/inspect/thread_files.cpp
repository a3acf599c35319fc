#include "inspect/thread_files.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace VIGIL_DETAIL {

std::string_view read_thread_file(int thread,
                                  std::string_view name,
                                  char* text,
                                  std::size_t size) noexcept {
  char path[64] = "/proc/self/task/";
  char* const end = std::to_chars(path + std::strlen(path), path + 48, thread).ptr;
  std::copy(name.begin(), name.end(), end)[0] = '\0';
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::size_t n = 0;
  for (;;) {
    const ssize_t got = ::read(fd, text + n, size - n);
    if (got <= 0) break;
    n += static_cast<std::size_t>(got);
  }
  const int error = errno;  // of the read that ended it
  ::close(fd);
  errno = error;
  return {text, n};
}

std::string_view word_after(std::string_view key, std::string_view text) noexcept {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  text.remove_prefix(std::min(text.find_first_not_of("\t "), text.size()));
  return text.substr(0, text.find('\n'));
}

}  // namespace VIGIL_DETAIL
