// The guards that a run holds on its process. While a runtime runs it changes the signal
// handlers (process_signals), the terminate handler (process_terminate), the hook of
// fatal() and the overflow report, and puts them back at its end. The fork handlers
// (process_fork) stay.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

class scheduler;
struct runtime_slot;

// For the length of a run. Several may exist at once. From its constructor on the
// runtime is in the table of running_runtimes.hpp.
class process_guard {
 public:
  // Throws std::invalid_argument for a signal that cannot be caught.
  explicit process_guard(scheduler& s);
  ~process_guard();
  process_guard(const process_guard&) = delete;
  process_guard& operator=(const process_guard&) = delete;

 private:
  runtime_slot* slot_;
};

// For each worker thread: a stack for signal handlers, and exact timeouts. Guests may
// share a thread: the last guard there takes both back.
class thread_guard {
 public:
  thread_guard();
  ~thread_guard();
  thread_guard(const thread_guard&) = delete;
  thread_guard& operator=(const thread_guard&) = delete;
};

}  // namespace VIGIL_DETAIL
