#include "core/base/assert.hpp"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

std::atomic<fatal_hook> present_hook{nullptr};

void print(const char* format, std::va_list arguments) noexcept {
  char text[1024] = "vigil: ";
  constexpr int prefix = 7;
  int n = std::vsnprintf(text + prefix, sizeof text - prefix - 1, format, arguments);
  if (n < 0) n = 0;
  auto size = static_cast<std::size_t>(prefix) + static_cast<std::size_t>(n);
  if (size > sizeof text - 2) size = sizeof text - 2;
  text[size++] = '\n';
  write_to_stderr(text, size);
}

}  // namespace

void write_to_stderr(const char* text, std::size_t size) noexcept {
  while (size > 0) {
    const ssize_t n = ::write(2, text, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text += n;
    size -= static_cast<std::size_t>(n);
  }
}

void set_fatal_hook(fatal_hook new_hook) noexcept {
  present_hook.store(new_hook);
}

void fatal(const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  print(format, arguments);
  va_end(arguments);
  // Taken out first, so that a failure inside the dump does not dump again.
  if (const auto dump = present_hook.exchange(nullptr)) dump();
  std::abort();
}

void warn(const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  print(format, arguments);
  va_end(arguments);
}

void check_failed(const char* condition, const char* message, const char* file, int line) noexcept {
  fatal("%s\n  (%s does not hold, %s:%d)", message, condition, file, line);
}

}  // namespace VIGIL_DETAIL
