// Waits until a runtime or a thread is at rest, where a pause could only hope for it.
//
// The waits are for plain threads, and for runs that are under way. They end with the
// run, so that a case fails instead of hanging.
#pragma once

#include "core/sched/worker/scheduler.hpp"

#include <cstddef>
#include <cstdio>
#include <thread>

#include <sys/types.h>

namespace vigil::testing_support {

// Every worker sleeps, so no fiber goes on before a deadline, or somebody outside acts.
inline bool is_at_rest(detail::scheduler& sched) {
  return sched.idle().asleep() == sched.workers().size();
}

// Every worker sleeps, and none to a deadline.
inline bool is_at_rest_for_good(detail::scheduler& sched) {
  return is_at_rest(sched) && sched.idle().earliest() == detail::never;
}

inline void wait_until_at_rest(detail::scheduler& sched) {
  while (!is_at_rest(sched) && sched.state.phase() == detail::run_phase::running)
    std::this_thread::yield();
}

// Waits until `n` workers sleep or nap, whatever the others do.
inline void wait_until_resting(detail::scheduler& sched, std::size_t n) {
  while (sched.idle_count() < n && sched.state.phase() == detail::run_phase::running)
    std::this_thread::yield();
}

// A thread's state, and how often it has given its processor away to wait.
struct thread_look {
  char state = '?';
  long waits = -1;

  bool operator==(const thread_look&) const = default;
};

inline thread_look look_at(pid_t thread) {
  thread_look seen;
  char line[128];
  std::snprintf(line, sizeof line, "/proc/self/task/%d/status", static_cast<int>(thread));
  std::FILE* const file = std::fopen(line, "r");
  if (file == nullptr) return seen;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    std::sscanf(line, "State: %c", &seen.state);
    std::sscanf(line, "voluntary_ctxt_switches: %ld", &seen.waits);
  }
  std::fclose(file);
  return seen;
}

// Two looks tell a thread that sleeps from one that is just being woken.
inline bool is_asleep(pid_t thread) {
  const thread_look first = look_at(thread);
  if (first.state != 'S') return false;
  std::this_thread::yield();
  return look_at(thread) == first;
}

}  // namespace vigil::testing_support
