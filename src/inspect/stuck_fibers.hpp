// stuck_fibers: the fibers that can never go on, in a process that does.
//
// The danger. A fiber that is called stuck and wakes after all has sent its reader after
// the wrong fault. A pointer to the channel may be anywhere: in a handle, in a reference
// to one that another fiber captured, in a register, in a function that a timer will run.
//
// The rule. A fiber is stuck only if no part of the process that may still act holds a
// pointer to anything that ends its wait. So everything is looked at: all threads are
// stopped, and all memory is read, word by word, except for the stacks of fibers that may
// be stuck and the objects that only they reach. A word that happens to look like a
// pointer, or is left over, makes a fiber less certain, never more.
//
// SF1 Visible is a stack or an object that a word in visible memory points into. All
//     memory is visible from the start, except what SF2 names.
// SF2 Not visible from the start: the used part of the stack of each parked fiber that
//     waits without a deadline for something that others do (a candidate), known objects
//     (wait_ways.hpp), all control blocks, free stacks, and the scan's own memory.
// SF3 A candidate is live if one of the ways in which its wait can end is open. A way
//     through an object is open if the object is visible; through the end of a fiber or
//     the holder of a lock, if that fiber is live or no candidate. A stop is a way as
//     well, through the handle of the fiber or through a group: open if the control block
//     or the stack is visible.
// SF4 The stack of a live fiber is visible.
//
// The least sets that SF1 to SF4 allow are computed; what is not live then is stuck.
#pragma once

#include "core/sched/report/fiber_view.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <vector>

namespace VIGIL_DETAIL {

enum class open_way : std::uint8_t {
  none,         // stuck for certain
  not_known,    // a timer, or something that is not looked into
  held_thing,   // what it waits for can be reached
  held_stack,   // its stack can be reached: perhaps a group may stop it
  held_handle,  // its handle can be reached: it may be asked to stop
  other_fiber,  // the fiber that it waits for may go on
};

struct fiber_number {
  std::uint64_t runtime = 0;
  std::uint64_t id = 0;  // 0: none
};

// A fiber that waits without a deadline for something that others do.
struct waiting_fiber {
  stack where;
  std::uint64_t id = 0;
  std::uint32_t runs = 0;
  open_way way = open_way::none;
  // held_...: the fiber that may go on, on whose stack the way to it begins; or none
  fiber_number seen_by = {};

  // Whether it waits still.
  bool is(const fiber_view& s) const noexcept { return s.id == id && s.runs == runs; }
};

struct stuck_list {
  std::vector<waiting_fiber> fibers;
  // Why none of them is certain; nullptr: those with open_way::none are.
  const char* why_not = nullptr;
};

// Whether the fiber is one of a runtime that looks at the others: the program does not
// know of it. Caller: is inside a handler_scope.
bool is_observers(const fiber_view& s) noexcept;

// Stops the process for as long as its memory is read: about a millisecond for each ten
// megabytes. Throws std::bad_alloc, std::system_error. Caller: holds a slab_hold, and is
// inside a handler_scope.
stuck_list find_stuck_fibers();

}  // namespace VIGIL_DETAIL
