// dump_extension: what vigil-inspect adds to every dump once it is installed: the frames
// of each fiber, and the object that it waits for; and the frames of a fiber that keeps
// its worker for long. The library itself needs none of these.
#pragma once

#include "core/base/atomic.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/report/fiber_view.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

class dump_writer;
class scheduler;
class worker;

// A fiber that has run for longer than a limit, as the overseer has seen it.
struct long_run {
  VIGIL_FOR_IO bool goes_on() const noexcept;

  const worker& on;
  const unsigned long stretch;  // of the worker (worker_counters), which is its run
  stack where{};
  fiber_view who{};
  const char* limit = "";  // the name of the setting
  char text[2304] = {};    // the line that reports it
};

class dump_extension {
 public:
  // --- async-signal-safe; caller: is inside process_dump(), and holds a slab_hold
  // Says which object the fiber waits for, after the reason: " of fiber 4".
  virtual void write_object(dump_writer& out,
                            const stack& where,
                            const fiber_view& s) const noexcept = 0;
  // Writes the frames, a line each, or a line that says why there are none.
  virtual void write_frames(dump_writer& out,
                            const stack& where,
                            const fiber_view& s) const noexcept = 0;
  // Says, at the end, what such a dump lacks.
  virtual void write_limits(dump_writer& out) const noexcept = 0;

  // --- not in a signal handler
  // Writes all fibers and tasks instead, equal ones together; with `running_on` the
  // running fibers of that scheduler alone. False if it cannot be done, or not in time:
  // nothing was written but why. Caller: is not inside process_dump().
  virtual bool write_fibers(dump_writer& out, const scheduler* running_on) const noexcept = 0;
  // Writes the frames of the caller.
  virtual void write_own_frames(dump_writer& out) const noexcept = 0;
  // Reads the frames of the run, and has its text and them written to standard error by a
  // thread for which nobody waits: naming functions takes locks that the fiber may hold.
  // False if the run is over: nothing is written. Caller: as of take_view().
  virtual bool report(const long_run& r) const noexcept = 0;

 protected:
  dump_extension() = default;
  dump_extension(const dump_extension&) = delete;
  dump_extension& operator=(const dump_extension&) = delete;
  ~dump_extension() = default;
};

// nullptr: none is installed. An extension lives for ever.
VIGIL_FOR_IO extern atomic<const dump_extension*> installed_extension;

}  // namespace VIGIL_DETAIL
