// fiber_report: all fibers of the process with their frames, equal ones together, and all
// tasks, as the dumps print them and as JSON.
#pragma once

#include "core/sched/report/fiber_table.hpp"
#include "inspect/awaited_object.hpp"
#include "inspect/frame_list.hpp"
#include "inspect/object_users.hpp"
#include "inspect/stuck_fibers.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {

class dump_extension;
class scheduler;
class symbol_reader;

struct reported_fiber {
  fiber_view shown;
  awaited_object awaited;
  const waiting_fiber* found = nullptr;  // by a search for stuck fibers
};

// Fibers with the same frames, but for those that are folded (symbols.hpp).
struct fiber_group {
  frame_list frames;
  frame_list called;  // of the function on a side pool that they wait for
  std::vector<reported_fiber> fibers;
};

struct reported_task {
  fiber_view shown;
  awaited_object awaited;
  std::uint64_t runtime = 0;  // its number
};

struct fiber_report {
  // The largest first.
  std::vector<std::unique_ptr<fiber_group>> groups;
  // All there are; not of a report on one scheduler.
  std::unique_ptr<fiber_table> table;
  std::string table_text;            // the table as it is written in text
  std::size_t fibers = 0;            // all there are
  std::size_t collected = 0;         // in the groups: fibers_shown_at_most
  std::vector<reported_task> tasks;  // fibers_shown_at_most
  std::size_t all_tasks = 0;
  bool may_have_ended_calls = false;  // frames_room
  // The users of objects with a name, by shown_object::users and by what they did.
  std::map<std::pair<disguised<const void>, wait_reason>, shown_users> users;

  const shown_users* users_of(const shown_object& o) const {
    const auto found = users.find({o.users, o.reason});
    return found != users.end() ? &found->second : nullptr;
  }
};

// Puts groups together that differ in folded frames alone. Throws std::bad_alloc.
void join_groups(fiber_report& r, symbol_reader& names);

// Looks at all fibers and tasks; with `running_on` at the running fibers of that
// scheduler alone. `objects` names them in the text of the table; nullptr: no such text.
// Not in a signal handler, and not on a fiber. Throws std::bad_alloc.
fiber_report collect_fibers(const scheduler* running_on,
                            bool with_frames,
                            const dump_extension* objects);

// Looks at the fibers on these stacks. Caller: holds a slab_hold, and has counted itself
// in handlers_inside; otherwise as above.
fiber_report collect_these(std::span<const stack> some, bool with_frames);
// The same for those of them that still wait as they were found, with their frames. The
// report keeps pointers to them.
fiber_report collect_these(std::span<const waiting_fiber> some);

// Tells apart the objects that were made in one line, in all of these reports alike.
void number_objects(std::initializer_list<fiber_report*> reports);

}  // namespace VIGIL_DETAIL
