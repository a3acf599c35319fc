// Whether the library may still be used after fork() or std::exit.
//
// A child has only the thread that forked. So a child that is forked while a thread of
// the library is there (counted by process_count_own_threads) may not use the library:
// each call that would ends the program with a message. A child that is forked while
// there is none may.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Ends the program in a child that lacks threads.
VIGIL_FOR_IO void process_check_fork(const char* call) noexcept;

// Whether this is a child that lacks threads.
bool process_lacks_threads() noexcept;

// Whether std::exit has been called, or this is a child that lacks threads: objects with
// static storage are being destroyed, or will be, while workers run or are missing.
bool process_is_exiting() noexcept;
// Notes that std::exit has been called.
void process_exits() noexcept;

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
