#include "core/machine/stack_error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// The first number after `key` in a small file of /proc; 0 if there is none.
std::size_t number_in(const char* path, const char* key) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[4096];
  const ssize_t size = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* const found = std::strstr(text, key);
  std::size_t number = 0;
  if (found != nullptr) std::sscanf(found + std::strlen(key), "%zu", &number);
  return number;
}

std::size_t lines_of(const char* path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::size_t lines = 0;
  char text[4096];
  for (ssize_t size; (size = ::read(file, text, sizeof text)) > 0;) {
    for (ssize_t i = 0; i < size; ++i)
      lines += text[i] == '\n' ? 1 : 0;
  }
  ::close(file);
  return lines;
}

std::string kib(std::size_t bytes) {
  return std::to_string(bytes >> 10) + " KiB";
}

std::string too_many_mappings() {
  return "the process is at its limit of mappings, vm.max_map_count = " +
         std::to_string(number_in("/proc/sys/vm/max_map_count", "")) +
         ", and each stack guarded by mprotect takes two; raise it (sysctl -w "
         "vm.max_map_count=...) or run fewer fibers at once (Linux 6.13 and later guards stacks "
         "without mappings, unless memory is locked by mlockall)";
}

std::string out_of_memory() {
  return "the system has no memory for it; run fewer fibers at once or give them smaller stacks "
         "(fiber_options::stack_size)";
}

// Says why mmap refused.
std::string mapping_refused(int error, std::size_t asked) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const std::size_t used = number_in("/proc/self/status", "VmSize:") << 10;
    if (used + asked > limit.rlim_cur) {
      return "the address space is limited by RLIMIT_AS to " + kib(limit.rlim_cur) + ", of which " +
             kib(used) + " are used; raise it (ulimit -v)";
    }
  }
  if (error == EAGAIN) {
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    return "memory is locked by mlockall, and RLIMIT_MEMLOCK allows " + kib(limit.rlim_cur) +
           ", of which " + kib(number_in("/proc/self/status", "VmLck:") << 10) +
           " are used; raise it (ulimit -l), or call mlockall without MCL_FUTURE";
  }
  const std::size_t most = number_in("/proc/sys/vm/max_map_count", "");
  // The kernel counts a few mappings that the list does not show.
  if (most != 0 && lines_of("/proc/self/maps") + 16 >= most) return too_many_mappings();
  return out_of_memory();
}

}  // namespace

stack_error::stack_error(int error, const std::string& text)
    : std::system_error(error, std::generic_category(), text) {}

void throw_stack_error(std::size_t usable, const stack_failure& failure) {
  using step = stack_failure::step;
  const std::size_t asked = stride_of(size_class_of(usable));
  std::string text = "vigil: no stack of " + kib(usable) + " for a fiber: ";
  switch (failure.at) {
    case step::map:
      text += "cannot map " + kib(asked) + ": " + mapping_refused(failure.error, asked);
      break;
    case step::guard:
      text += "cannot protect its guard: ";
      text += failure.error == ENOMEM ? too_many_mappings() : out_of_memory();
      break;
    case step::table:
    case step::none:
      text += "the table of " + std::to_string(std::size_t{max_chunks} * chunk_slabs) +
              " slabs is full; run fewer fibers at once";
      break;
  }
  throw stack_error(failure.error, text);
}

}  // namespace VIGIL_DETAIL
