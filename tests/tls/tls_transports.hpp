// Connected pairs of tls_streams, as in transports.hpp: `near` is the server.
#pragma once

#include "examples/io/certificate.hpp"
#include "io/transports.hpp"

#include <vigil/io/tls.hpp>

#include <boost/asio/write.hpp>

#include <openssl/ssl.h>

namespace vigil::io_testing {

using asio::ssl::stream_base;

inline bool is_of_tls(const error_code& error) {
  return error.category() == asio::error::get_ssl_category();
}

// Reads one byte, and returns only the error.
inline error_code tls_read_byte(io::tls_stream<io::memory_stream>& s) {
  char byte = 0;
  error_code error;
  s.read_some(asio::buffer(&byte, 1), error);
  return error;
}

// Asks the other end for new keys, with a message of one byte. Returns the bytes written.
inline std::size_t ask_for_keys(io::tls_stream<io::memory_stream>& s, error_code& error) {
  REQUIRE(SSL_key_update(s.native_handle(), SSL_KEY_UPDATE_REQUESTED) == 1);
  return asio::write(s, asio::buffer("x", 1), error);
}

// One key for all tests. Session tickets are off: a server would send them after the
// handshake, and without them nothing is left unread.
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
        far(contexts().client, std::move(below.far)) {
    far.set_host("localhost");
  }

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

// Connects a pair and completes the handshake.
template <class Connection>
struct any_tls {
  static constexpr bool outlives_write_timeouts = false;

  template <class Stream>
  static void finish(Stream& s) {
    error_code ignored;
    s.shutdown(ignored);
    s.close();
  }

  static Connection shaken(auto below) {
    Connection made(std::move(below));
    made.handshake();
    return made;
  }
};

struct of_tls : any_tls<tls_over_tcp> {
  static auto make() { return shaken(tcp_connection()); }
};

struct of_tls_in_memory : any_tls<tls_in_memory> {
  static auto make() { return shaken(memory_connection()); }
};

using over_tls = on_real_time<of_tls>;
using over_virtual_tls = on_virtual_time<of_tls_in_memory>;

}  // namespace vigil::io_testing
