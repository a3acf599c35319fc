#include "core/sched/process/process.hpp"

#include "core/base/assert.hpp"
#include "core/machine/overflow.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/process/process_fork.hpp"
#include "core/sched/process/process_signals.hpp"
#include "core/sched/process/process_terminate.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>

#include <pthread.h>
#include <sched.h>

namespace VIGIL_DETAIL {
namespace {

// Async-signal-safe, as the two below are. The handler's mask has SIGPIPE: one that the
// dump causes, by a pipe that nobody reads, is taken back.
void on_sigquit(int) {
  const handler_scope scope;
  sigset_t pending;
  ::sigpending(&pending);
  process_dump(2, dump_place::handler);
  if (::sigismember(&pending, SIGPIPE) == 1) return;
  sigset_t broken_pipe;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  const timespec at_once{};
  ::sigtimedwait(&broken_pipe, nullptr, &at_once);
}

// Called with any lock held.
void dump_to_stderr() noexcept {
  process_dump(2, dump_place::handler);
}

// A handler on another thread may still hold the address of a scheduler whose slot has
// been emptied.
void wait_for_handlers() noexcept {
  while (handlers_inside.load() != 0)
    ::sched_yield();
}

}  // namespace

process_guard::process_guard(scheduler& s) {
  process_check_fork("vigil::run");
  // Installed before the lock is taken for the first time.
  static const bool fork_handler = ::pthread_atfork(&before_fork, &in_parent, &in_child) == 0;
  static_cast<void>(fork_handler);
  const std::lock_guard guard(process_lock);
  // Notices an exit on a thread that is not a worker, before the runtimes that were there
  // already are destroyed.
  static const bool exit_handler = std::atexit(&process_note_exit) == 0;
  static_cast<void>(exit_handler);
  runtime_slot& slot = free_slot();
  slot_ = &slot;
  std::uint64_t signals = 0;
  for (const int signal : s.settings().stop_on)
    signals |= std::uint64_t{1} << signal;
  slot.running.store(&s);
  add_signals(slot, signals);
  install_terminate();
  if (runtimes_running.fetch_add(1) == 0) {
    set_fatal_hook(&dump_to_stderr);
    install_overflow_report(&describe_fiber);
  }
  if (s.settings().dump_on_sigquit && caught[SIGQUIT].users == 0) {
    struct sigaction present {};

    ::sigaction(SIGQUIT, nullptr, &present);
    if (is_handler(present, SIG_DFL)) {
      struct sigaction action {};

      action.sa_handler = &on_sigquit;
      action.sa_flags = SA_RESTART | SA_ONSTACK;
      sigfillset(&action.sa_mask);
      ::sigaction(SIGQUIT, &action, nullptr);
    }
  }
}

process_guard::~process_guard() {
  const std::lock_guard guard(process_lock);
  drop_signals(*slot_);
  slot_->running.store(nullptr);
  if (runtimes_running.fetch_sub(1) == 1) {
    struct sigaction standard {};  // what was there, or ours would not be

    put_back(SIGQUIT, &on_sigquit, standard);
    remove_overflow_report();
    remove_terminate();
    set_fatal_hook(nullptr);
  }
  wait_for_handlers();
}

namespace {

thread_local unsigned thread_guards = 0;
thread_local unsigned long earlier_slack = 0;
thread_local std::optional<alternate_signal_stack> signal_stack;

}  // namespace

thread_guard::thread_guard() {
  if (thread_guards == 0) {
    signal_stack.emplace();  // may throw
    earlier_slack = set_thread_timer_slack(1);
  }
  ++thread_guards;
}

thread_guard::~thread_guard() {
  if (--thread_guards != 0) return;
  set_thread_timer_slack(earlier_slack);
  signal_stack.reset();
}

}  // namespace VIGIL_DETAIL
