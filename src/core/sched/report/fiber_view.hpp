// fiber_view: what is shown of a fiber, or of a task, copied out of its control block
// while it goes on. `fiber_fields` names the fields in their order: dumps, JSON, the live
// page, the metrics and, by way of debug_layout, the scripts for gdb and lldb show a
// fiber by that table alone.
//
// A new field is a member of fiber_core and the code that writes it; here a member, its
// copy and a row; and a line in docs/guide/reports.md. The program of the test,
// tests/inspect/fiber_view_program.cpp, needs a fiber that shows it.
#pragma once

#include "core/base/disguised.hpp"
#include "core/base/nanos.hpp"
#include "core/machine/jump.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/run_bounds.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

namespace VIGIL_DETAIL {

// Its file may be that of a library that has been unloaded: copied_text.
struct fiber_view : fiber_identity {
  // Copies from a block that is itself a copy. Async-signal-safe.
  void show(const fiber& f) noexcept {
    static_cast<fiber_identity&>(*this) = f.identity;
    name[sizeof name - 1] = '\0';
    role = f.role;
    reason = f.present.reason.load();
    object = f.present.object.load();
    ends_with = f.present.ends_with.load();
    since = f.present.since.load();
    until = f.present.until.load();
    sched = f.sched;
    pinned = f.pinned != nullptr;
    in_callback = f.callback.timer.load() != nullptr;
    stop_requested = f.stop_flag.load();
    resumes_at = f.side.resumes_at();
  }

  bool is_parked() const noexcept { return state == fiber_state::parked && !moved_on; }

  const char* state_words() const noexcept {
    if (moved_on) return "has moved on";
    if (!left_since) return to_string(state);
    return state == fiber_state::running ? "running when it was read" : "parked when it was read";
  }

  const void* task = nullptr;  // of a task: its address, which is only compared
  fiber_state state = fiber_state::made;
  fiber_role role = fiber_role::user;
  // The wait, while it is parked. The objects may be gone: they are only compared, or
  // read by read_memory().
  wait_reason reason = wait_reason::none;
  disguised<const void> object;      // awaited::object
  disguised<const birth> ends_with;  // of a context
  nanos since = 0;                   // 0: not known
  nanos until = never;
  nanos now = 0;  // on the clock of its runtime
  // While it runs: for how long it has by now, in real time; and the kernel's id of its
  // thread, 0 if no worker was found that runs it.
  std::optional<run_bounds::span> ran;
  int thread = 0;
  const scheduler* sched = nullptr;  // only compared
  std::uint64_t runtime = 0;         // the number of the one that runs it; 0: it has ended
  bool has_others = false;           // other runtimes run as well
  bool pinned = false;
  bool in_callback = false;  // of a runner
  bool stop_requested = false;
  // Where it goes on, unless it runs, and the count of its runs at that moment; of a task
  // the count of its waits.
  resume_point resumes_at = nullptr;
  std::uint32_t runs = 0;
  bool moved_on = false;    // ran while it was looked at: of the rest only who it is holds
  bool left_since = false;  // is of the moment in which a thread's stack was read; gone on now
};

// How the value of a field is written, in text and in JSON. Those of the wait are shown
// of a parked fiber alone; in JSON they belong to "waits_for".
enum class field_kind : std::uint8_t {
  id,       // the number of a fiber; 0: none, and not shown
  name,     // a text of the program's, escaped, in brackets; not shown if empty
  state,    // fiber_state
  run,      // for how long it runs: two bounds; a debugger shows the thread instead
  reason,   // of the wait; the object follows
  age,      // of the wait; a moment, 0: not known, and not shown; how long ago it was
  due,      // of the wait; a moment, `never`: not shown; how far it is
  flag,     // the words before it alone, if it is set
  place,    // "file:line", or what stands in place of a file
  runtime,  // its number; in a line only if there are several
};

constexpr const char* to_string(field_kind kind) noexcept {
  constexpr const char* names[] = {
      "id", "name", "state", "run", "reason", "age", "due", "flag", "place", "runtime"};
  static_assert(std::size(names) == static_cast<std::size_t>(field_kind::runtime) + 1);
  return names[static_cast<std::size_t>(kind)];
}

struct fiber_field {
  constexpr bool is_of_wait() const noexcept {
    return kind == field_kind::reason || kind == field_kind::age || kind == field_kind::due;
  }

  field_kind kind;
  const char* key;     // in JSON
  const char* before;  // in a line, before the value; no tabs and no line ends
  // In the control block, for debuggers; 0 bytes: they find it by themselves.
  std::uint32_t offset;
  std::uint32_t size;
  std::uint64_t (*raw)(const fiber_view&) noexcept;  // of a number, moment or flag
};

template <auto Member>
std::uint64_t raw_of(const fiber_view& v) noexcept {
  return static_cast<std::uint64_t>(v.*Member);
}

// The class is not of standard layout; both compilers know its offsets all the same.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
#define VIGIL_AT(MEMBER) \
  offsetof(fiber_core, MEMBER), sizeof(std::declval<const fiber_core&>().MEMBER)

// The line of a fiber begins with "fiber ", that of a task with "task ".
inline constexpr fiber_field fiber_fields[] = {
    {field_kind::id, "id", "", VIGIL_AT(identity.id), raw_of<&fiber_view::id>},
    {field_kind::name, "name", "", VIGIL_AT(identity.name), nullptr},
    {field_kind::state, "state", " [", VIGIL_AT(state), nullptr},
    {field_kind::run, "ran", ", for ", 0, 0, nullptr},
    {field_kind::reason, "reason", ": ", VIGIL_AT(present.reason), nullptr},
    {field_kind::age, "nanoseconds", ", for ", VIGIL_AT(present.since), raw_of<&fiber_view::since>},
    {field_kind::due,
     "due_in_nanoseconds",
     ", due ",
     VIGIL_AT(present.until),
     raw_of<&fiber_view::until>},
    {field_kind::flag, "pinned", ", pinned", VIGIL_AT(pinned), raw_of<&fiber_view::pinned>},
    {field_kind::flag,
     "stop_requested",
     ", stop requested",
     VIGIL_AT(stop_flag),
     raw_of<&fiber_view::stop_requested>},
    {field_kind::place, "started_at", "] started at ", VIGIL_AT(identity.file), nullptr},
    {field_kind::id,
     "parent",
     " by fiber ",
     VIGIL_AT(identity.parent),
     raw_of<&fiber_view::parent>},
    {field_kind::runtime, "runtime", " of runtime ", 0, 0, raw_of<&fiber_view::runtime>},
};

#undef VIGIL_AT
#pragma GCC diagnostic pop

// Whether this field is shown of this fiber in a line.
inline bool is_shown(const fiber_field& f, const fiber_view& v) noexcept {
  if (f.is_of_wait() && !v.is_parked()) return false;
  switch (f.kind) {
    case field_kind::name:
      return v.name[0] != '\0';
    case field_kind::run:
      return v.state == fiber_state::running && !v.moved_on && v.ran.has_value();
    case field_kind::due:
      return f.raw(v) != static_cast<std::uint64_t>(never);
    case field_kind::id:
    case field_kind::age:
    case field_kind::flag:
      return f.raw(v) != 0;
    case field_kind::runtime:
      return v.has_others && f.raw(v) != 0;
    case field_kind::state:
    case field_kind::reason:
    case field_kind::place:
      return true;
  }
  return false;
}

// The time since an `age`, at least 0; the time until a `due`, below 0 if it has passed.
inline nanos nanos_of(const fiber_field& f, const fiber_view& v) noexcept {
  const auto at = static_cast<nanos>(f.raw(v));
  if (f.kind == field_kind::due) return at - v.now;
  return v.now > at ? v.now - at : 0;
}

// Copies what the control block on this stack says. Returns false where no fiber lies, or
// one that has begun or ended meanwhile. Async-signal-safe. Caller: holds a slab_hold,
// and has counted itself in handlers_inside.
VIGIL_FOR_IO bool take_view(const stack& where, fiber_view& v) noexcept;

// The fiber that the worker runs at this moment; nullptr: none.
const fiber* current_of(const worker& w) noexcept;

// Whether the fiber on this stack seems to have this number: a cheap look before a view
// is taken. Caller: as above.
VIGIL_FOR_IO bool has_id(const stack& where, std::uint64_t id) noexcept;

// Whether the stack of this fiber is measured (stack_sampler.hpp): another cheap look.
VIGIL_FOR_IO bool is_measured(const stack& where) noexcept;

// Which run the fiber on this stack is in, or was in last, and its place: a runner has
// another one in each callback or task. Async-signal-safe. Caller: as above.
struct fiber_moment {
  std::uint64_t id = 0;
  std::uint32_t runs = 0;
  const char* file = nullptr;
  std::uint32_t line = 0;
};

VIGIL_FOR_IO fiber_moment moment_of(const stack& where) noexcept;

// Whether the fiber on this stack has not run since the view was taken, and so whether
// what was read from its stack in between belongs to one moment. Caller: as above.
VIGIL_FOR_IO bool is_unmoved(const stack& where, const fiber_view& v) noexcept;

}  // namespace VIGIL_DETAIL
