// Connected pairs of tls_streams, as in transports.hpp: `near` is the server.
#pragma once

#include "examples/io/certificate.hpp"
#include "io/transports.hpp"

#include <vigil/io/tls.hpp>

namespace vigil::io_testing {

using asio::ssl::stream_base;

// One key for all tests. A server would send session tickets after the handshake;
// without them nothing is left unread.
inline example::tls_contexts& contexts() {
  static const example::certificate known = example::make_certificate();
  static example::tls_contexts made(known);
  static const bool quiet = SSL_CTX_set_num_tickets(made.server.native_handle(), 0) == 1;
  static_cast<void>(quiet);
  return made;
}

template <class Stream>
struct tls_connection {
  explicit tls_connection(connection<io::deadline_stream<Stream>> below)
      : near(contexts().server, std::move(below.near)),
        far(contexts().client, std::move(below.far)) {}

  void handshake() {
    auto server = spawn([this] { near.handshake(stream_base::server); });
    far.handshake(stream_base::client);
    server.join();
  }

  io::tls_stream<Stream> near;
  io::tls_stream<Stream> far;
};

using tls_over_tcp = tls_connection<tcp::socket>;
using tls_in_memory = tls_connection<io::memory_stream>;

struct any_tls {
  static constexpr bool outlives_write_timeouts = false;

  template <class Stream>
  static void finish(Stream& s) {
    error_code ignored;
    s.shutdown(ignored);
    s.close();
  }

  template <class Connection, class Make>
  static auto shaken(Make make) {
    return [make] {
      Connection made(make());
      made.handshake();
      return made;
    };
  }
};

struct over_tls : on_real_time<any_tls> {
  template <class F>
  static void run(F body) {
    run_each(shaken<tls_over_tcp>(tcp_connection), body);
  }
};

struct over_virtual_tls : on_virtual_time<any_tls> {
  template <class F>
  static void run(F body) {
    run_each(shaken<tls_in_memory>(memory_connection), body);
  }
};

}  // namespace vigil::io_testing
