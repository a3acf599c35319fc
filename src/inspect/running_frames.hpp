// running_frames: the frames of a fiber that runs, or of a function on a side pool. A
// thread in a system call is read as it is (blocked_call.hpp); another one is sent a
// signal, whose handler, on the thread's alternate stack if it has one, copies the
// registers and the interrupted stack, no more. The asker goes up the copy.
#pragma once

#include "core/machine/stack.hpp"
#include "inspect/frame_list.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

struct long_run;

// Has running fibers asked by this signal from now on; 0: not at all. A handler that the
// program has for it is kept, and called for each signal that is not ours. Throws
// std::invalid_argument for other signals than SIGURG, SIGWINCH, SIGUSR1, SIGUSR2 and the
// real-time ones.
void ask_running_by(int signal);

// Reads the stack of the thread that runs the fiber; if it stands in no system call, asks
// it and waits for its answer, a tenth of a second at most. `s` is made the view of that
// moment: a later run of the same fiber may be the one that was read. The result is
// other_stack if the thread ran neither on this stack nor on one of vigil's: the fiber
// did so if it is still in the run of the snapshot. Not in a signal handler. Caller:
// holds a slab_hold.
void read_running_frames(const stack& where,
                         fiber_view& s,
                         frames_room& room,
                         frame_list& out) noexcept;

// The same for a run that was seen to be long. False if it is over: the stack may be of a
// later one, which of a runner's has the same number.
bool read_long_run(const long_run& r, frames_room& room, frame_list& out) noexcept;

// The same for a thread of a side pool, on its own stack, that runs the function for
// which the fiber waits. False if the stack may be of another moment: the fiber has moved
// on.
bool read_called_frames(const stack& where,
                        const fiber_view& s,
                        int thread,
                        frames_room& room,
                        frame_list& out) noexcept;

// Keeps others from asking, until end_asking(). Returns the signal; 0: there is none.
int begin_asking() noexcept;
void end_asking() noexcept;

}  // namespace VIGIL_DETAIL
