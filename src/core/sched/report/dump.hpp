// The dump: every fiber and every running runtime of the process, in text. It walks the
// table of stacks and reads control blocks racing with their owners, so a line is a
// snapshot and may mix two moments. It works even if every worker is stuck.
#pragma once

#include "core/machine/stack.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/report/fiber_view.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class dump_extension;
class fiber_table;
class scheduler;
class worker;

// More fibers than anybody reads. A report that looks at so many gives each row of the
// fiber_table its share; the rest are only counted.
inline constexpr std::size_t fibers_shown_at_most = 10'000;
// So many fibers of a row have a line of their own. A dump begins with the table if a row
// has more.
inline constexpr std::size_t lines_at_most = 20;
// So many fibers of a row have their frames in a dump that a signal's handler writes.
inline constexpr std::size_t frames_at_most = 3;

// The code that writes a dump: a signal handler, or code that may hold any lock; or any
// other.
enum class dump_place : std::uint8_t { handler, program };

// Writes every fiber and every running runtime. Async-signal-safe with
// dump_place::handler and a writer to a descriptor: then it takes no lock and allocates
// nothing.
void process_dump(dump_writer& out, dump_place place) noexcept;
void process_dump(int descriptor, dump_place place) noexcept;

// The part of it that needs nothing from an extension: the runtimes, and with them the
// fibers and tasks if nobody else has written them. Async-signal-safe.
VIGIL_FOR_IO void process_dump_rest(dump_writer& out, bool with_fibers) noexcept;

// Writes the running fibers of one runtime alone. Not in a signal handler.
void process_dump_running(int descriptor, const scheduler& s) noexcept;

// Copies the fiber that w runs at this moment, and tells its stack. False if there is
// none, or another one by now. Caller: as of take_view().
bool view_of_running(const worker& w, stack& where, fiber_view& v) noexcept;

// Writes what keeps each running runtime from its end. Not async-signal-safe: it takes
// locks.
void process_list_holders(dump_writer& out) noexcept;

// Writes the line of one fiber or task, with its end. `object` writes which object it
// waits for, to follow the reason. Async-signal-safe if that is.
VIGIL_FOR_IO void dump_fiber(dump_writer& out, const fiber_view& v, call_ref object) noexcept;

// The lines of those fibers of the process that a filter takes.
struct fiber_lines {
  dump_writer& out;
  const char* before = "";                                                   // of each line
  bool (*takes)(const fiber_view&, const scheduler& of) noexcept = nullptr;  // nullptr: all
  const scheduler* of = nullptr;
  std::size_t at_most = fibers_shown_at_most;
  const dump_extension* extension = nullptr;  // adds objects and frames
  fiber_table* table = nullptr;               // has counted them: some of each row suffice
  std::size_t found = 0;
  std::size_t written = 0;
};

// Writes them, and how many more there are. Async-signal-safe if the writer is. Caller:
// has counted itself in handlers_inside.
void write_lines(fiber_lines& all) noexcept;

// Writes "fiber 12 (name)" for the fiber on this stack, or "" if there is none. Returns
// the setting that decides how large the stack is. Async-signal-safe.
const char* describe_fiber(const stack& where, char* text, std::size_t size) noexcept;

}  // namespace VIGIL_DETAIL
