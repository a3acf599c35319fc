// The kernel tells a thread's call while the thread is off the processor, and otherwise
// "running". A thread that was off it at two looks, and ran in between, has left it once
// more: its count of switches, read before the first look and after the second one, tells
// that, even if it has made an equal call again.
#include "inspect/blocked_call.hpp"

#include "inspect/thread_files.hpp"

#include <algorithm>
#include <charconv>

namespace VIGIL_DETAIL {
namespace {

bool count_switches(int thread, std::uint64_t& count) noexcept {
  char text[4096];
  const std::string_view all = read_thread_file(thread, "/status", text, sizeof text);
  count = 0;
  for (const char* const key : {"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"}) {
    const std::string_view word = word_after(key, all);
    std::uint64_t n = 0;
    if (std::from_chars(word.data(), word.data() + word.size(), n).ec != std::errc()) return false;
    count += n;
  }
  return true;
}

// Cuts off the last word, a number like 0x7f.
std::uintptr_t take_last(std::string_view& from) noexcept {
  const std::size_t at = from.rfind(" 0x");
  std::uintptr_t n = 0;
  if (at == std::string_view::npos) return n;
  std::from_chars(from.data() + at + 3, from.data() + from.size(), n, 16);
  from = from.substr(0, at);
  return n;
}

}  // namespace

#if defined(__x86_64__)
blocked_call::blocked_call(int thread) noexcept : thread_(thread) {
  if (!count_switches(thread, first_.switches)) return;
  first_.size = read_thread_file(thread, "/syscall", first_.text, sizeof first_.text).size();
  std::string_view rest = first_.call();
  is_told_ = !rest.empty();
  // "-1": it waits in the kernel, but not in a call; for a page, say.
  if (!is_told_ || rest[0] < '0' || rest[0] > '9') return;
  caller_.place = take_last(rest);
  caller_.is_call = false;
  caller_.registers.set(return_address_register, caller_.place);
  caller_.registers.set(stack_pointer_register, take_last(rest));
  stands_ = caller_.place != 0 && caller_.registers[stack_pointer_register] != 0;
}

bool blocked_call::has_stood() const noexcept {
  look now;
  now.size = read_thread_file(thread_, "/syscall", now.text, sizeof now.text).size();
  return now.call() == first_.call() && count_switches(thread_, now.switches) &&
         now.switches == first_.switches;
}
#else
// Elsewhere a call's code may keep its return address in a register alone.
blocked_call::blocked_call(int thread) noexcept : thread_(thread) {}

bool blocked_call::has_stood() const noexcept {
  return false;
}
#endif

}  // namespace VIGIL_DETAIL
