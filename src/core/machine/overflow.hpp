// The report of a stack overflow, by the fiber's name: an alternate signal stack for each
// worker and a handler that recognises the guards of stacks.
#pragma once

#include "core/machine/stack.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// Gives the calling thread a stack to handle signals on, with a guard of its
// own; keeps one that is installed already. Constructed and destroyed on the
// same thread. Throws std::system_error.
class alternate_signal_stack {
 public:
  alternate_signal_stack();
  ~alternate_signal_stack();
  alternate_signal_stack(const alternate_signal_stack&) = delete;
  alternate_signal_stack& operator=(const alternate_signal_stack&) = delete;

 private:
  std::byte* mapped_ = nullptr;  // null: the thread had one
  std::size_t size_ = 0;         // the guard included
};

// Writes what runs on the stack, such as "fiber 12 (name)", with a final zero, and
// returns the name of the setting that decides how large it is. Must be
// async-signal-safe.
using describe_stack = const char* (*)(const stack& where, char* text, std::size_t size) noexcept;

// Watches SIGSEGV and SIGBUS. A fault in the guard below the running stack is reported on
// descriptor 2, and the process dies by that signal; any other fault goes to the handler
// that was there before, or to the default. Calls are counted: the last remove restores
// the earlier handlers, unless another handler has been put on top meanwhile. The latest
// `describe` is in force.
void install_overflow_report(describe_stack describe) noexcept;
void remove_overflow_report() noexcept;

}  // namespace VIGIL_DETAIL
