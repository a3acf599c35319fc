// fiber_view: what a dump shows of a fiber, copied out of its control block while the
// fiber goes on; or of a task. Async-signal-safe.
#pragma once

#include "core/base/nanos.hpp"
#include "core/machine/jump.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/run_bounds.hpp"

#include <cstdint>
#include <optional>

namespace VIGIL_DETAIL {

// Its file may be that of a library that has been unloaded: copied_text.
struct fiber_view : fiber_identity {
  const void* task = nullptr;  // of a task: its address, which is only compared
  fiber_state state = fiber_state::made;
  fiber_role role = fiber_role::user;
  // The wait, while it is parked. The objects may be gone: they are only compared, or
  // read by read_memory().
  wait_reason reason = wait_reason::none;
  const void* object = nullptr;      // awaited::object
  const birth* ends_with = nullptr;  // of a context
  nanos since = 0;
  nanos until = never;
  nanos now = 0;  // on the clock of its runtime
  // While it runs: for how long it has by now, in real time; and the kernel's id of its
  // thread, 0 if no worker was found that runs it.
  std::optional<run_bounds::span> ran;
  int thread = 0;
  const scheduler* sched = nullptr;  // only compared
  bool pinned = false;
  bool in_callback = false;  // of a runner
  bool stopped = false;
  // Where it goes on, unless it runs, and the count of its runs at that moment; of a task
  // the count of its waits.
  resume_point resumes_at = nullptr;
  std::uint32_t runs = 0;
  bool moved_on = false;  // ran while it was looked at: of the rest only who it is holds
};

// Copies what the control block on this stack says. Returns false where no fiber lies, or
// one that has begun or ended meanwhile. Caller: holds a slab_hold, and has counted
// itself in handlers_inside.
VIGIL_FOR_IO bool take_view(const stack& where, fiber_view& s) noexcept;

// The fiber that the worker runs at this moment; nullptr: none.
const fiber* current_of(const worker& w) noexcept;

// Whether the fiber on this stack seems to have this number: a cheap look before a
// snapshot. Caller: as above.
VIGIL_FOR_IO bool has_id(const stack& where, std::uint64_t id) noexcept;

// Whether the stack of this fiber is measured (stack_sampler.hpp): another cheap look.
VIGIL_FOR_IO bool is_measured(const stack& where) noexcept;

// Whether the fiber on this stack has not run since the snapshot was taken, and so
// whether what was read from its stack in between belongs to one moment. Caller: as
// above.
VIGIL_FOR_IO bool is_unmoved(const stack& where, const fiber_view& s) noexcept;

}  // namespace VIGIL_DETAIL
