// What a runtime changes in its process while it runs, and puts back: signal
// handlers, the terminate handler, the fork handler, the overflow report.
#pragma once

#include "base/nanos.hpp"
#include "machine/overflow.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/run/run_bounds.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

class dump_writer;
class scheduler;
struct signal_watcher;

// For the length of a run. Several may exist at once.
class process_guard {
 public:
  // Throws std::invalid_argument for a signal that cannot be caught.
  explicit process_guard(scheduler& s);
  ~process_guard();
  process_guard(const process_guard&) = delete;
  process_guard& operator=(const process_guard&) = delete;

 private:
  scheduler& sched_;
};

// For each worker thread: a stack for signal handlers, exact timeouts.
class thread_guard {
 public:
  thread_guard();
  ~thread_guard();
  thread_guard(const thread_guard&) = delete;
  thread_guard& operator=(const thread_guard&) = delete;

 private:
  unsigned long earlier_slack_;
  alternate_signal_stack signals_;
};

// Ends the program if this is a child that was forked while a runtime ran, or a
// thread that process_count_own_threads() counts was there: those are gone.
VIGIL_FOR_IO void process_check_fork(const char* call) noexcept;

// std::exit has been called, or this is such a child: what is static is being
// destroyed, or will be, while workers run or are missing.
bool process_is_exiting() noexcept;
// This is such a child.
bool process_lacks_threads() noexcept;
void process_exits() noexcept;

// Before std::terminate: what ends the program has been said.
void process_end_is_named() noexcept;

// Threads of the process, ours included.
std::size_t process_thread_count() noexcept;

// Whether there is no thread but so many workers and the quiet ones. A quiet one
// that is about to go, or has just gone, is none.
bool process_has_only(std::size_t workers) noexcept;

// Threads of ours that are no workers and start nothing by themselves: those of
// side pools are, from before they exist, but for while they run the user's code.
// Counted by who makes one; the thread itself says first what it is, and is counted
// out at its very end, after what is thread_local in it.
void process_count_quiet_threads(int change) noexcept;
void process_is_quiet_thread() noexcept;
std::size_t process_quiet_threads() noexcept;

// Runs, from before their first thread until after their last, and threads of ours
// that do not belong to one: a child that is forked meanwhile lacks them.
VIGIL_FOR_IO void process_count_own_threads(int change) noexcept;

// Counts out the calling thread, which belongs to no run, before it hands over its last
// result: a fork that what it hands over leads to finds no thread of ours, and waits
// while this lives if nothing else is counted. From now on the thread is a quiet one, so
// that whoever gets the result may be found in a deadlock at once.
class VIGIL_FOR_IO process_last_step {
 public:
  process_last_step() noexcept;
  ~process_last_step();
  process_last_step(const process_last_step&) = delete;
  process_last_step& operator=(const process_last_step&) = delete;
};

// Now on the clock of a runtime that runs; on the monotonic one if there is none
// at this address. Async-signal-safe; caller: inside process_dump().
nanos process_now(const scheduler* s) noexcept;

// Every fiber and every running runtime. Async-signal-safe if the writer is.
void process_dump(dump_writer& out) noexcept;
void process_dump(int descriptor) noexcept;

// The running fibers of one runtime alone.
void process_dump_running(int descriptor, const scheduler& s) noexcept;

// For how long a fiber has run, if the runtime at this address runs, and the fiber
// on it. Async-signal-safe; caller: inside process_dump().
bool process_has_run_for(const scheduler* s, const fiber& f, run_bounds::span& out) noexcept;

// What holds each running runtime. Not for signal handlers: it takes locks.
void process_list_holders(dump_writer& out) noexcept;

// Adds the watcher, and catches its signals from now on until the end of the run. Throws
// std::invalid_argument, wrong_place.
void process_watch_signals(scheduler& s, signal_watcher& w);

}  // namespace vigil::inline VIGIL_ABI::detail
