// The handlers of a process that forks while the library is in use, and the threads that
// they look for: a child that is forked while a thread of the library is there may exec
// or _exit (process_state.hpp).
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Counts runs, from before their first thread until after their last, and threads of
// the library that belong to no run.
VIGIL_FOR_IO void process_count_own_threads(int change) noexcept;

// Counts out the calling thread, which belongs to no run, before it hands over its last
// result. So the receiver of the result may fork at once: the fork finds no thread of the
// library, and waits until this object is gone, unless other threads are counted, which
// spoil the child anyway. From now on the thread is a quiet one, so that the receiver may
// also be found in a deadlock at once.
class VIGIL_FOR_IO process_last_step {
 public:
  process_last_step() noexcept;
  ~process_last_step();
  process_last_step(const process_last_step&) = delete;
  process_last_step& operator=(const process_last_step&) = delete;
};

// The handlers for pthread_atfork, which process_guard installs.
void before_fork() noexcept;
void in_parent() noexcept;
void in_child() noexcept;

}  // namespace VIGIL_DETAIL
