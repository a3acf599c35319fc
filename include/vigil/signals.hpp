// notify_signals: signals as values of a channel.
#pragma once

#include <vigil/channel.hpp>

#include <cstddef>
#include <initializer_list>

namespace VIGIL_PUBLIC {

// Catches these signals from now on, and sends their numbers to the returned receiver.
//
//   auto interrupts = vigil::notify_signals({SIGINT, SIGTERM});
//   vigil::select(vigil::on_recv(interrupts, ...), ...);
//
// A signal is dropped, as in Go, if `capacity` of them are waiting to be received; the
// kernel may also merge several of one kind. While the receiver exists no deadlock is
// reported, but the program is not kept alive. Signals of options::stop_on still stop the
// runtime. Several receivers, even in different runtimes, may ask for the same signal;
// each gets it.
//
// Lifetime: delivery ends with the last copy of the receiver. Shutdown: the end of the
// run closes the channel and restores the previous handlers.
//
// Thread safety: any fiber makes one; any fiber or thread may receive. Throws wrong_place
// outside a fiber; std::invalid_argument for an empty list, a capacity of 0, and a number
// that is not from 1 to 63, cannot be caught (SIGKILL, SIGSTOP) or reports a fault of the
// program (SIGSEGV, SIGBUS, SIGILL, SIGFPE); std::bad_alloc. Cost: the handler sets a
// bit, and a worker sends. Behaviour: Go's signal.Notify, except that the previous
// handlers return only at the end of the run, not with the receiver.
VIGIL_API receiver<int> notify_signals(std::initializer_list<int> numbers,
                                       std::size_t capacity = 16);

}  // namespace VIGIL_PUBLIC
