// send_to_process: a signal to the test's own process.
#pragma once

#include "core/machine/sanitizer.hpp"

#include <csignal>

#include <unistd.h>

namespace vigil::testing_support {

// ThreadSanitizer holds a signal back until the thread that gets it calls into libc, and
// one that sleeps on a futex for ever does not; so there it is sent to the caller.
inline void send_to_process(int signal) {
  if (VIGIL_TSAN) {
    ::raise(signal);
  } else {
    ::kill(::getpid(), signal);
  }
}

}  // namespace vigil::testing_support
