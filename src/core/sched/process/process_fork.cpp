#include "core/sched/process/process_fork.hpp"

#include "core/base/atomic.hpp"
#include "core/machine/process_state.hpp"
#include "core/machine/process_threads.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/worker.hpp"

#include <sched.h>

namespace VIGIL_DETAIL {
namespace {

atomic<int> own_threads{0};
atomic<int> last_steps{0};  // process_last_step

// Whether the child of the fork that is under way lacks threads: guarded by
// process_lock. A thread that was there may begin its last step before the child is
// made.
bool fork_lacks_threads = false;

}  // namespace

// Makes the fork wait until all that process_lock guards, and all that a last step
// touches, is whole in the child. With threads of ours the child is refused anyway.
//
// A step may begin while this waits for the lock, so the steps are looked at under the
// lock. The lock is not held while this waits for a step, since the code that a step
// hands its result to may need it.
void before_fork() noexcept {
  for (;;) {
    process_lock.lock();
    fork_lacks_threads = own_threads.load() != 0;
    if (fork_lacks_threads || last_steps.load() == 0) break;
    process_lock.unlock();
    ::sched_yield();
  }
  process_threads_lock();
}

void in_parent() noexcept {
  process_threads_unlock();
  process_lock.unlock();
}

void in_child() noexcept {
  process_threads_unlock();
  if (fork_lacks_threads || own_threads.load() != 0) {
    process_note_fork();
  } else {
    // Left in the parent: the handlers of other threads, a thread that has begun its
    // last step meanwhile, and one that has done it.
    handlers_inside.store(0);
    last_steps.store(0);
    process_threads_forget_quiet();
  }
  process_lock.unlock();
  forget_worker_after_fork();
}

void process_count_own_threads(int change) noexcept {
  own_threads.fetch_add(change);
}

// In this order: a fork that finds no thread counted finds the step.
process_last_step::process_last_step() noexcept {
  process_count_quiet_threads(1);
  process_is_quiet_thread();
  last_steps.fetch_add(1);
  own_threads.fetch_sub(1);
}

process_last_step::~process_last_step() {
  last_steps.fetch_sub(1);
}

}  // namespace VIGIL_DETAIL
