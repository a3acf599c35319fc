// stopped_threads: stops all threads of the process, for as long as it exists, except the
// calling one and one that waits for it.
#pragma once

#include "inspect/scanned_memory.hpp"

#include <vigil/detail/config.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// A reason of why_not() that may be gone a moment later.
inline constexpr const char* not_in_time = "a thread has not stopped in time";

// Each thread is sent the signal of install(); its handler stays where it is, and the
// thread's registers lie in the frame that the kernel made for it.
//
// caller  takes no lock and allocates nothing but own memory while this exists: a thread
//         that was stopped may hold any lock.
class stopped_threads {
 public:
  // `waiting`: a thread that waits for the caller, its registers saved in its memory.
  stopped_threads(own_memory& memory, int waiting);
  ~stopped_threads();
  stopped_threads(const stopped_threads&) = delete;
  stopped_threads& operator=(const stopped_threads&) = delete;

  // Whether every thread has stopped. If not, why.
  bool all() const noexcept { return why_not_ == nullptr; }

  const char* why_not() const noexcept { return why_not_; }

  // The lowest address in use of the stack between these two, if a thread has stopped
  // there; otherwise the bottom.
  std::uintptr_t used_from(std::uintptr_t bottom, std::uintptr_t top) const noexcept;

 private:
  const char* stop_all(int waiting);
  const char* wait_for_signals(int waiting) const noexcept;

  const int signal_;
  own_memory& memory_;
  const char* why_not_ = nullptr;
};

// Whether the system has dropped what a signal carries (RLIMIT_SIGPENDING), so that it is
// not known where it came from.
inline bool has_lost_info(const siginfo_t& info) noexcept {
  return info.si_code == SI_USER && info.si_pid == 0;
}

// Stops the thread while it is to stop, even if the signal came from elsewhere: ours
// was merged with it then. True if the signal is for nobody else. Called by the handler
// of the signal, with the stack pointer of the interrupted code. Async-signal-safe.
bool stay_stopped(const siginfo_t& info, std::uintptr_t stack_pointer) noexcept;

}  // namespace VIGIL_DETAIL
