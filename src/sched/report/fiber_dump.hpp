// The dump: every fiber of the process, in text. It is async-signal-safe: it takes no
// lock, allocates nothing, and works even if every worker is stuck. It walks the table of
// stacks and reads control blocks racing with their owners, so a line is a snapshot and
// may mix two moments.
#pragma once

#include "machine/stack.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/report/dump_writer.hpp"
#include "sched/report/fiber_snapshot.hpp"
#include "sched/worker/run_bounds.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class scheduler;
class worker;

// More fibers than anybody reads; the rest are only counted.
inline constexpr std::size_t fibers_shown_at_most = 10'000;

void dump_fibers(dump_writer& out) noexcept;
// Its running fibers alone.
void dump_running(dump_writer& out, const scheduler& s) noexcept;

// Copies the fiber that w runs at this moment. False if there is none, or another one by
// now. Not in a signal handler.
bool snapshot_of_running(const worker& w, fiber_snapshot& s) noexcept;

// Writes which object a fiber waits for, to follow the reason.
struct object_text {
  void (*write)(dump_writer& out, const void* argument) noexcept;
  const void* argument;
};

// Writes the line of one fiber or task, with its end.
VIGIL_FOR_IO void dump_fiber(dump_writer& out,
                             const fiber_snapshot& s,
                             const object_text& object) noexcept;
void dump_runtime(dump_writer& out, const scheduler& s, bool with_tasks) noexcept;

// Says for how long f has run. False if it does not run on s, or if another look is under
// way. Async-signal-safe.
bool has_run_for(const scheduler& s, const fiber& f, run_bounds::span& out) noexcept;

// The kernel's id of the thread on which f runs; 0 if it does not run on s.
int thread_that_runs(const scheduler& s, const fiber& f) noexcept;

// Writes "fiber 12 (name)" for the fiber on this stack, or "" if there is none. Returns
// the setting that decides how large the stack is.
const char* describe_fiber(const stack& where, char* text, std::size_t size) noexcept;

}  // namespace VIGIL_DETAIL
