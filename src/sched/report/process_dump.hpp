// Dumps of all running runtimes, and the questions that a dump asks about one of them.
// Async-signal-safe unless a comment says otherwise.
#pragma once

#include "base/nanos.hpp"
#include "sched/worker/run_bounds.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

class dump_writer;
class fiber_core;
class scheduler;

// The code that writes a dump: a signal handler, or code that may hold any lock; or any
// other.
enum class dump_place : std::uint8_t { handler, program };

// Writes every fiber and every running runtime. Async-signal-safe with
// dump_place::handler and a writer to a descriptor.
void process_dump(dump_writer& out, dump_place place) noexcept;
void process_dump(int descriptor, dump_place place) noexcept;

// The part of it that needs nothing from an extension: the runtimes, and with them the
// fibers and tasks if nobody else has written them.
VIGIL_FOR_IO void process_dump_rest(dump_writer& out, bool with_fibers) noexcept;

// Writes the running fibers of one runtime alone. Not in a signal handler.
void process_dump_running(int descriptor, const scheduler& s) noexcept;

// The time on the clock of the runtime at this address if it runs, otherwise on the
// monotonic clock. Caller: inside process_dump().
nanos process_now(const scheduler* s) noexcept;

// For how long the runtime at this address has run the fiber; false if the runtime does
// not run, or not the fiber. Caller: inside process_dump().
bool process_has_run_for(const scheduler* s, const fiber_core& f, run_bounds::span& out) noexcept;

// The kernel's id of the thread on which the fiber runs; 0 if it runs on none of the
// runtime at this address. Caller: inside process_dump().
VIGIL_FOR_IO int process_thread_that_runs(const scheduler* s, const fiber_core& f) noexcept;

// Writes what keeps each running runtime from its end. Not async-signal-safe: it takes
// locks.
void process_list_holders(dump_writer& out) noexcept;

}  // namespace VIGIL_DETAIL
