#include "core/machine/without_signals.hpp"

#include "core/base/atomic.hpp"

namespace VIGIL_DETAIL {
namespace {

// The one that vigil::inspect::install() takes by default: it may be called later.
atomic<int> open_signal{SIGURG};

}  // namespace

without_signals::without_signals() noexcept {
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
    sigdelset(&all, fault);
  if (const int open = open_signal.load()) sigdelset(&all, open);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

without_signals::~without_signals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void process_leave_open(int signal) noexcept {
  open_signal.store(signal);
}

}  // namespace VIGIL_DETAIL
