// The dump: every fiber of the process, in text. It is async-signal-safe: it takes no
// lock, allocates nothing, and works even if every worker is stuck. It walks the table of
// stacks and reads control blocks racing with their owners, so a line is a snapshot and
// may mix two moments.
#pragma once

#include "machine/stack.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/run/run_bounds.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace vigil::inline VIGIL_ABI::detail {

class scheduler;

// Collects text and writes it out in pieces: to a descriptor, which is async-signal-safe,
// or to a stream, which is not.
class dump_writer {
 public:
  explicit dump_writer(int descriptor) noexcept : descriptor_(descriptor) {}

  explicit dump_writer(std::FILE* stream) noexcept : stream_(stream) {}

  VIGIL_FOR_IO dump_writer& text(const char* s) noexcept;
  dump_writer& text(const char* s, std::size_t limit) noexcept;
  dump_writer& name(const char* s) noexcept;  // a fiber's name: escaped, in one line
  VIGIL_FOR_IO dump_writer& number(std::uint64_t n) noexcept;
  VIGIL_FOR_IO dump_writer& seconds(std::int64_t nanoseconds) noexcept;  // "1.234 s"
  void flush() noexcept;

 private:
  void put(char c) noexcept;

  int descriptor_ = -1;
  std::FILE* stream_ = nullptr;
  std::size_t used_ = 0;
  char buffer_[1024];
};

void dump_fibers(dump_writer& out) noexcept;
void dump_running(dump_writer& out, const scheduler& s) noexcept;  // its running fibers alone
void dump_runtime(dump_writer& out, const scheduler& s) noexcept;

// Says for how long f has run. False if it does not run on s, or if another look is under
// way. Async-signal-safe.
bool has_run_for(const scheduler& s, const fiber& f, run_bounds::span& out) noexcept;

// The place where a fiber was started, for messages: "file:line", or if the line is 0,
// the text that stands in place of a file.
struct place_in_words {
  VIGIL_FOR_IO place_in_words(const char* file, unsigned line) noexcept;
  explicit place_in_words(const fiber& f) noexcept;

  char text[512];
};

// Writes "fiber 12 (name)" for the fiber on this stack, or "" if there is none.
void describe_fiber(const stack& where, char* text, std::size_t size) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
