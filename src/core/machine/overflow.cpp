#include "core/machine/overflow.hpp"

#include "core/base/assert.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>

#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

constexpr int watched_signals[] = {SIGSEGV, SIGBUS};

std::mutex install_lock;
unsigned installs = 0;  // guarded by install_lock
bool in_chain[2] = {
    false, false};  // guarded by install_lock; our handler is installed, or below one that is
struct sigaction earlier_actions[2];  // written before our handler is installed
std::atomic<describe_stack> describe_now{nullptr};

// 4 KiB on x86-64; on 64-bit ARM the kernel's choice.
std::size_t page_size() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// The stack pointer of the code that faulted; 0 on machines where it is not known.
std::uintptr_t stack_pointer(const void* machine_state) noexcept {
#if defined(__x86_64__)
  const auto& registers = static_cast<const ucontext_t*>(machine_state)->uc_mcontext.gregs;
  return static_cast<std::uintptr_t>(registers[REG_RSP]);
#elif defined(__aarch64__)
  return static_cast<const ucontext_t*>(machine_state)->uc_mcontext.sp;
#else
  static_cast<void>(machine_state);
  return 0;
#endif
}

// A stray pointer into a guard is not an overflow: the fault must come from code that
// runs on the stack above the guard.
bool is_overflow(const siginfo_t& fault, const void* machine_state, stack& out) noexcept {
  if (fault.si_code <= 0) return false;  // sent by a process, not by the kernel
  stack_place found;
  if (!find_stack(fault.si_addr, found) || !found.in_guard || !found.in_use) return false;
  out = found.where;
  const std::uintptr_t sp = stack_pointer(machine_state);
  if (sp == 0) return true;
  const auto bottom = reinterpret_cast<std::uintptr_t>(found.where.bottom);
  return sp >= bottom - stack_guard_size && sp < bottom + found.where.size();
}

void report(const stack& where) noexcept {
  char name[256] = "";
  const char* setting = "fiber_options::stack_size";
  if (const describe_stack describe = describe_now.load())
    setting = describe(where, name, sizeof name);
  name[sizeof name - 1] = '\0';
  // As fatal(), without the heap and without a lock.
  warn(
      "stack overflow in %s: its stack of %zu KiB is used up; give it more with %s, or look for a "
      "recursion without end or a big local array",
      name[0] != '\0' ? name : "a fiber",
      where.size() >> 10,
      setting);
}

// The fault happens again after the return and then kills; a signal that was
// sent is sent again.
void die_by(int signal, const siginfo_t& fault) noexcept {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (fault.si_code <= 0) ::raise(signal);
}

void on_fault(int signal, siginfo_t* fault, void* machine_state) {
  const int saved_errno = errno;
  stack where;
  const struct sigaction& before = earlier_actions[signal == watched_signals[0] ? 0 : 1];
  if (is_overflow(*fault, machine_state, where)) {
    report(where);
    die_by(signal, *fault);
  } else if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, fault, machine_state);
  } else if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && fault->si_code > 0)) {
    die_by(signal, *fault);
  } else if (before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
  errno = saved_errno;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_fault;
}

}  // namespace

alternate_signal_stack::alternate_signal_stack() {
  stack_t present = {};
  if (::sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) == 0) return;
  const std::size_t page = page_size();
  // Wide vector registers make the kernel's own frame big.
  const std::size_t usable =
      (std::size_t{64} << 10) + ((::getauxval(AT_MINSIGSTKSZ) + page - 1) & ~(page - 1));
  size_ = usable + page;
  void* const at = ::mmap(
      nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    throw std::system_error(
        errno, std::generic_category(), "vigil: no memory for a worker's signal stack");
  }
  mapped_ = static_cast<std::byte*>(at);
  // If this is refused, the stack serves without a guard.
  ::mprotect(mapped_, page, PROT_NONE);
  stack_t mine = {};
  mine.ss_sp = mapped_ + page;
  mine.ss_size = usable;
  if (::sigaltstack(&mine, nullptr) == 0) return;
  const int error = errno;
  ::munmap(mapped_, size_);
  throw std::system_error(error, std::generic_category(), "vigil: sigaltstack");
}

alternate_signal_stack::~alternate_signal_stack() {
  if (mapped_ == nullptr) return;
  stack_t present = {};
  if (::sigaltstack(nullptr, &present) == 0 && present.ss_sp == mapped_ + page_size()) {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
  }
  ::munmap(mapped_, size_);
}

void install_overflow_report(describe_stack describe) noexcept {
  const std::lock_guard guard(install_lock);
  describe_now.store(describe);
  if (installs++ > 0) return;
  for (int i = 0; i < 2; ++i) {
    // Another handler was installed on top of this one and still passes faults
    // down: installing this one on top of it would make a circle.
    if (in_chain[i]) continue;
    ::sigaction(watched_signals[i], nullptr, &earlier_actions[i]);
    struct sigaction mine = {};
    mine.sa_sigaction = &on_fault;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&mine.sa_mask);
    in_chain[i] = ::sigaction(watched_signals[i], &mine, nullptr) == 0;
  }
}

void remove_overflow_report() noexcept {
  const std::lock_guard guard(install_lock);
  if (installs == 0 || --installs > 0) return;
  describe_now.store(nullptr);
  for (int i = 0; i < 2; ++i) {
    struct sigaction present;
    if (!in_chain[i] || ::sigaction(watched_signals[i], nullptr, &present) != 0 ||
        !is_ours(present)) {
      continue;
    }
    ::sigaction(watched_signals[i], &earlier_actions[i], nullptr);
    in_chain[i] = false;
  }
}

}  // namespace VIGIL_DETAIL
