// The io_context of a runtime: where its idle workers wait, and its fibers'
// operations complete.
//
//   boost::asio::io_context context;      // the program's own …
//   vigil::options settings;
//   vigil::io::attach(settings, context);
//   vigil::run(settings, [] { … });
//
//   vigil::run([] {
//     tcp::socket s(vigil::io::context());  // … or the runtime's, made at first use
//   });
//
// While a runtime is idle one of its workers waits inside the io_context
// (`run_one`), for its timers and for I/O at the same time. Handlers run there on
// the worker's own stack: keep them short. A wait in one throws wrong_place.
//
// Thread safety: as said for each.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/config.hpp>
#include <vigil/runtime.hpp>

#include <boost/asio/io_context.hpp>

namespace vigil::io::inline VIGIL_ABI {

// Runtimes made with these options wait inside `context`. It may also be run by
// threads of the caller's, and serve several runtimes. Until the runtime is
// destroyed:
//
// - it does not run out of work, so a run() of the caller's returns by stop() only;
// - after a stop() I/O stands still until io::restart(context), but time goes on:
//   sleeps and timers are served. Operations that are cancelled end all the same:
//   for them the runtime restarts it for one poll(), and stops it again.
//
// When the runtime goes and leaves no other work in it, the io_context may be stopped,
// as any that has run out of work: io::restart() it before it is run again, or given
// to another runtime.
//
// `context` must outlive the runtime's runs. The runtime's constructor throws
// std::invalid_argument if it is stopped, and boost::system::system_error if no
// descriptor can be had. An exception that leaves a handler that a worker runs
// ends the program. Contexts made with a concurrency hint that switches locking
// off do not work; the hint 1 does, if only one runtime runs it.
VIGIL_API void attach(options& settings, boost::asio::io_context& context) noexcept;

// context.restart(), for one that runtimes are attached to; as with that, none of the
// caller's threads may be in its run(). The runtimes go on with I/O at once. Any
// thread. (Of a plain context.restart() an idle runtime hears only while its fibers
// wait for operations, every 10 ms; and one that comes while the runtime ends
// cancelled operations is undone.)
VIGIL_API void restart(boost::asio::io_context& context);

// The io_context of the calling fiber's runtime: the one that was attached, or the
// runtime's own, made now, which lives as long as the runtime. Objects on that
// one must be destroyed before it. Throws wrong_place outside a fiber and on
// virtual time, boost::system::system_error if no descriptor can be had.
VIGIL_API boost::asio::io_context& context();

}  // namespace vigil::io::inline VIGIL_ABI
