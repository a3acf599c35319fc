// without_signals: while it lives, threads that the caller starts take none of the
// program's signals, which are for the program's own threads. A thread's own faults are
// not blocked, nor is the signal that stops threads to look at them (process_leave_open).
#pragma once

#include <vigil/detail/config.hpp>

#include <csignal>

namespace VIGIL_DETAIL {

class without_signals {
 public:
  VIGIL_FOR_IO without_signals() noexcept;
  VIGIL_FOR_IO ~without_signals();
  without_signals(const without_signals&) = delete;
  without_signals& operator=(const without_signals&) = delete;

 private:
  sigset_t before_;
};

// Threads that are started from now on take this signal even so; 0: none. Until then it
// is SIGURG. Its handler may run on any thread.
VIGIL_FOR_IO void process_leave_open(int signal) noexcept;

}  // namespace VIGIL_DETAIL
