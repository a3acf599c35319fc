// The io_context of a runtime, in which its idle workers wait and its fibers' operations
// complete.
//
//   boost::asio::io_context context;      // the program's own …
//   vigil::options settings;
//   vigil::io::attach(settings, context);
//   vigil::run(settings, [] { … });
//
//   vigil::run([] {
//     tcp::socket s(vigil::io::io_context());  // … or the runtime's, made at first use
//   });
//
// While a runtime is idle, one of its workers waits inside the io_context (`run_one`),
// for its timers and for I/O at the same time. Handlers run there on the worker's own
// stack: keep them short. A wait in one throws wrong_place.
//
// A guest_runtime has a thread that waits there, since Asio has no descriptor for a
// host's loop. Handlers run on that thread, and fibers, as ever, on the host's. A handler
// that is bound to io::executor() runs on a fiber.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/config.hpp>
#include <vigil/runtime.hpp>

#include <boost/asio/io_context.hpp>

namespace VIGIL_IO {

// Makes runtimes with these options wait inside `context`. Threads of the program may run
// it as well, and several runtimes may share it. From its construction until its run has
// ended, and during each further run, a runtime is work in it: run() on the program's
// threads does not return, unless by stop(). Afterwards it returns once there is no other
// work, so the threads can be joined while the runtime is still there.
//
// After stop() I/O stands still until io::restart(context), but sleeps and timers
// continue. Cancelled operations still end: for them the runtime restarts it for one
// poll(), and stops it again.
//
// Shutdown: when a run ends and leaves no other work in the io_context, this may be
// stopped. The runtime's next run restarts it; call io::restart() before it is run
// otherwise or given to another runtime.
//
// A concurrency hint that switches locking off does not work; the hint 1 does, if only
// one runtime runs the io_context. An exception that leaves a handler on a worker goes to
// options::on_unhandled.
//
// Throws nothing; the runtime's constructor throws std::invalid_argument if `context` is
// stopped, and boost::system::system_error if there is no descriptor. Thread safety: that
// of the options. Lifetime: `context` must outlive the runtime's runs and its objects.
// Cost: a sleep of the only waiter makes three system calls instead of one. Behaviour: a
// thread in io_context::run().
VIGIL_API void attach(options& settings, boost::asio::io_context& context) noexcept;

// Calls context.restart() for an io_context that runtimes are attached to; none of the
// program's threads may be in its run(). The runtimes continue with I/O at once. Throws
// nothing of its own. Thread safety: any thread. Lifetime: the io_context outlives the
// call. Shutdown: works during it, and between two runs. Cost: a lock, and a wake for
// each idle runtime.
//
// (An idle runtime notices a plain context.restart() only while its fibers wait for
// operations, every 10 ms. One that comes while a runtime ends cancelled operations is
// undone.)
VIGIL_API void restart(boost::asio::io_context& context);

// The io_context of the calling fiber's runtime: the attached one, or the runtime's own,
// made now. Throws wrong_place outside a fiber and on virtual time,
// boost::system::system_error if there is no descriptor, and std::system_error if a
// guest_runtime cannot start its thread. Thread safety: any fiber; the io_context has
// Asio's. Lifetime: the runtime's own lives as long as the runtime, and objects on it
// must be destroyed before it. Shutdown: operations of fibers are cancelled. Cost: the
// first call makes the io_context, unless one is attached; a later one is a few loads.
VIGIL_API boost::asio::io_context& io_context();

}  // namespace VIGIL_IO
