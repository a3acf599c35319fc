// own_thread: does a piece of work on a thread of its own, for which the caller waits.
// Reading debug information takes more stack than a fiber has, and a fiber that looks at
// all others is looked at as well.
#pragma once

#include "sched/run/process_threads.hpp"

#include <vigil/detail/config.hpp>

#include <csignal>
#include <exception>
#include <thread>

#include <pthread.h>

namespace vigil::inline VIGIL_ABI::detail {

// Throws what f throws, and std::system_error if the thread cannot be started.
template <class F>
void on_own_thread(F f) {
  std::exception_ptr error;
  // The program's signals are not for it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  process_count_quiet_threads(1);  // it starts nothing
  try {
    std::thread work([&] {
      process_is_quiet_thread();
      try {
        f();
      } catch (...) {
        error = std::current_exception();
      }
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    work.join();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    process_count_quiet_threads(-1);
    throw;
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace vigil::inline VIGIL_ABI::detail
