// In front of gdb: the kernel refuses to write the registers that gdb knows only in part,
// as it refuses gdb 13.1 where the processor has AMX.

#include <cerrno>
#include <cstdarg>

#include <dlfcn.h>
#include <elf.h>
#include <sys/types.h>

extern "C" [[gnu::visibility("default")]] long ptrace(int request, ...) {
  constexpr int set_registers = 0x4205;  // PTRACE_SETREGSET
  va_list rest;
  va_start(rest, request);
  const auto process = va_arg(rest, pid_t);
  auto* const address = va_arg(rest, void*);
  auto* const data = va_arg(rest, void*);
  va_end(rest);
  if (request == set_registers && reinterpret_cast<long>(address) == NT_X86_XSTATE) {
    errno = EFAULT;
    return -1;
  }
  static auto* const next =
      reinterpret_cast<long (*)(int, pid_t, void*, void*)>(::dlsym(RTLD_NEXT, "ptrace"));
  return next(request, process, address, data);
}
