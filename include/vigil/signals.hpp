// Signals as values: notify_signals.
#pragma once

#include <vigil/channel.hpp>

#include <cstddef>
#include <initializer_list>

namespace vigil::inline VIGIL_ABI {

// From now on the signals are caught, and their numbers handed to the channel:
//
//   auto interrupts = vigil::notify_signals({SIGINT, SIGTERM});
//   vigil::select(vigil::on_recv(interrupts, ...), ...);
//
// A signal that finds `capacity` unreceived ones waiting is dropped, as in Go;
// the kernel, too, may fold several of one kind into one. It ends when the last
// copy of the receiver is gone; the handlers from before come back when the
// run ends, which also closes the channel. While it exists the program is not
// reported as deadlocked, but is not kept alive either. Signals of
// options::stop_on still stop the runtime.
//
// Caller: a fiber. Throws wrong_place elsewhere, std::invalid_argument for an
// empty list, for a number that is no signal from 1 to 63, cannot be caught
// (SIGKILL, SIGSTOP) or reports a fault of the program (SIGSEGV, SIGBUS, SIGILL,
// SIGFPE), and for a capacity of 0; std::bad_alloc. A signal may be asked for
// several times, also in several runtimes: all hear of it. Behaviour: Go's
// signal.Notify, but what happened before comes back at the end of the run, not
// when the receiver goes.
VIGIL_API receiver<int> notify_signals(std::initializer_list<int> which, std::size_t capacity = 16);

}  // namespace vigil::inline VIGIL_ABI
