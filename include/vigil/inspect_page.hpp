// A live page: what every fiber, worker and timer of the process does, in a browser. This
// is the library vigil-inspect-page, which needs vigil-inspect and vigil-io.
//
//   int main() {
//     vigil::inspect::install();
//     auto page = vigil::inspect::serve("/run/user/1000/app.sock");
//     vigil::run(...);
//   }
//
//   ssh -N -L 8091:/run/user/1000/app.sock host     and then http://localhost:8091/
//
// docs/guide/live-page.md shows the page, and says how it is kept safe.
#pragma once

#include <vigil/context.hpp>
#include <vigil/detail/config.hpp>

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace VIGIL_DETAIL {
class page_server;
}

namespace VIGIL_PUBLIC::inspect {

// page_options: the settings of serve(). Throws nothing. Thread safety: a plain value.
struct page_options {
  // The page ends when this context is done, if one is given; otherwise only with its
  // live_page. A std::stop_token becomes a context by with_stop_token
  // (vigil/stop_token.hpp).
  context stopping = {};
  // Lets an acceptor be served that others than this machine can reach. They may then
  // read all that the page shows, unencrypted.
  bool expose_to_network = false;
  // One more name by which browsers may reach the page, without a port, besides
  // `localhost` and loopback addresses. For a page that is exposed; IP addresses are
  // allowed there anyway.
  std::string_view host_name = {};
  // Whether a dump tells the addresses of channels and locks, as in install_options.
  bool addresses = false;
  // Whether the address and the token are printed to standard error at the start.
  bool announce = true;
};

// live_page: a page that is being served, and the right to end it. Throws nothing.
//
// Cost: the page has a thread and a runtime of its own, so it answers even if all workers
// of the program's runtimes are stuck, and takes none of their time. It keeps no program
// alive: it counts neither for exit_when::all_done nor when a deadlock is looked for. It
// does not show itself, and metrics leave it out.
//
// Thread safety: one object may be used by one fiber or thread at a time. Lifetime: a
// fork is restricted as long as it lives, as while a runtime runs (vigil/runtime.hpp).
// Shutdown: the end of a run does not end it.
class [[nodiscard]] VIGIL_API live_page {
 public:
  // For serve() only.
  explicit live_page(std::unique_ptr<detail::page_server> server) noexcept;

  live_page(live_page&& other) noexcept;
  live_page& operator=(live_page&& other) noexcept;

  // Ends the page: closes the acceptor and all connections, and waits until its thread
  // has ended, some milliseconds. A socket that serve() has made is removed.
  ~live_page();

  // The address for a browser, with the token as its fragment; for a Unix socket the
  // path. Valid as long as the object.
  std::string_view address() const noexcept;

  // The token that a POST request must carry, in a field `X-Vigil-Token`: 32 hexadecimal
  // digits, new for each page.
  std::string_view token() const noexcept;

 private:
  std::unique_ptr<detail::page_server> server_;
};

// Makes a Unix socket at this path, which only the calling user can reach (mode 0600),
// and serves the page there. A socket that an earlier process has left behind is
// replaced.
//
// Thread safety: any thread or fiber, whose worker is then kept for a millisecond or so.
// Lifetime: that of live_page. Shutdown: that of live_page. Cost: a thread, and a
// runtime. Throws std::system_error if there is no such socket (EADDRINUSE if somebody
// listens there, or if the path is another file), no thread or no descriptor, and
// std::invalid_argument for a path of more than 107 bytes.
VIGIL_API live_page serve(const char* path, const page_options& options = {});

inline live_page serve(const std::string& path, const page_options& options = {}) {
  return serve(path.c_str(), options);
}

// Serves the page to the clients of a listening stream socket, which the page owns from
// now on, even if this throws: TCP or Unix. Throws as above, and std::invalid_argument if
// the socket does not listen, or can be reached from other machines and
// options.expose_to_network does not allow that. Thread safety: that of serve. Lifetime:
// that of live_page. Shutdown: that of live_page. Cost: that of serve.
VIGIL_API live_page serve_descriptor(int listening, const page_options& options = {});

// The same for an acceptor of Asio, TCP or Unix, that no operation is using: its
// descriptor is taken out of it, and the page waits in an io_context of its own.
//
//   tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 8091});
//   auto page = vigil::inspect::serve(std::move(acceptor));
template <class Acceptor>
  requires requires(Acceptor& a) {
    { a.release() } -> std::convertible_to<int>;
  }
live_page serve(Acceptor acceptor, const page_options& options = {}) {
  return serve_descriptor(acceptor.release(), options);
}

}  // namespace VIGIL_PUBLIC::inspect
