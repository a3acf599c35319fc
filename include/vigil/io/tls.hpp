// tls_stream<Stream>: TLS with the deadlines of a deadline_stream, as Go's tls.Conn.
//
//   asio::ssl::context trusted = io::tls_client_context();  // once, for all connections
//
//   io::tls_stream<tcp::socket> peer(trusted, std::move(connected_socket));
//   peer.set_host("example.org");
//   peer.set_deadline(clock::now() + 10s);
//   peer.handshake(asio::ssl::stream_base::client);
//   std::size_t n = peer.read_some(buffer);
//   peer.shutdown();
//
// As in Go, a client verifies the other end's certificate and the name in it, whatever
// the verify mode of the context, and a server asks for no certificate unless it is
// told to: see handshake().
//
// asio::ssl::context sets it up. The stream is vigil's own, because an asio::ssl::stream
// takes no two operations that different fibers begin. Here one reads while another
// writes, on any workers: OpenSSL is entered by one at a time and never during a wait.
//
// A library of its own, vigil-tls, so that only its users need OpenSSL. A connection has
// 34 KiB of buffers beside OpenSSL's.
//
// Thread safety: as deadline_stream: all but what is said to be set before the handshake
// may be called by several fibers at a time. The asio::ssl::context must outlive the
// stream.
#pragma once

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/detail/tls.hpp>

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/system/system_error.hpp>

namespace vigil::io::inline VIGIL_ABI {

// Why a client's handshake is refused, beside what OpenSSL finds.
enum class tls_error {
  no_host_name = 1,  // neither set_host() nor skip_verification()
  no_certificate,    // the server has shown none, not even in a session that it resumed
};

VIGIL_API const boost::system::error_category& tls_category() noexcept;

inline boost::system::error_code make_error_code(tls_error e) noexcept {
  return {static_cast<int>(e), tls_category()};
}

// For clients: TLS 1.2 or later, and the system's trusted roots, from where OpenSSL
// looks for them (SSL_CERT_FILE, SSL_CERT_DIR; on Debian: package ca-certificates).
// More may be added. Reading them takes milliseconds, so make one context for all
// connections. Throws boost::system::system_error.
VIGIL_API boost::asio::ssl::context tls_client_context();

// OpenSSL's callbacks (verification, names, ALPN, key log, info) run on the fiber that
// called, inside OpenSSL: they must neither wait nor throw, and a wait ends the program
// with a message (this_fiber::no_park). Bring what they need before the handshake, and
// pass on what they learn with try_send.
//
// Timeouts. A read that timed out, and a handshake that did while it waited for the
// other end, may be called again with a later deadline: the bytes that had come are
// kept. A write that fails when a part of its record may have been sent, at a deadline,
// after an idle time or because its fiber was stopped, ends writing for good: each
// later one fails in the same way; reads go on. A write whose deadline had passed
// before it began has sent nothing and breaks nothing, and so has one that was stopped
// while it waited for its turn. Calls behind a handshake wait until that has ended.
//
// While half of a TLS message (a session ticket, new keys) has arrived, nothing can be
// sealed: a write, or shutdown(), waits under the write deadline until a reading fiber
// has the rest, or reads it itself. If that deadline comes, nothing has been sent and
// nothing is broken. A read that is called meanwhile waits for the write.
//
// Errors of TLS itself have asio::error::get_ssl_category(); a read that fails with one
// has told the other end why (a fatal alert), as a handshake has. There is no
// renegotiation. New keys of TLS 1.3 are answered at once, even by a fiber that only
// reads. Such answers wait for no room and for no other fiber's write; but when 64 KiB of
// them have piled up, because the other end does not read, the next read sends them
// first, under the write deadline.
template <class Stream>
class tls_stream {
 public:
  using next_layer_type = deadline_stream<Stream>;
  using executor_type = typename next_layer_type::executor_type;
  using handshake_type = boost::asio::ssl::stream_base::handshake_type;

  // `args`: of the stream below. Throws system_error if OpenSSL has no memory.
  template <class... Args>
    requires std::is_constructible_v<next_layer_type, Args...>
  explicit tls_stream(boost::asio::ssl::context& context, Args&&... args)
      : core_(context.native_handle(), std::forward<Args>(args)...) {}

  tls_stream(tls_stream&&) = default;
  tls_stream& operator=(tls_stream&&) = default;

  // An idle list is set here, before the handshake: next_layer().set_idle_list(list).
  // Bytes of TLS count as progress. When the list ends a write that waits, that ends
  // writing for good, as above; its end of a read or of a handshake's wait does not.
  next_layer_type& next_layer() noexcept { return core_.below(); }

  const next_layer_type& next_layer() const noexcept { return core_.below(); }

  executor_type get_executor() { return core_.below().get_executor(); }

  // For settings before the handshake, and questions after it.
  SSL* native_handle() noexcept { return core_.engine().native_handle(); }

  // Before the handshake, by a client: the name, or the address, that it asks for and
  // that the certificate must have: in its list of names, where a star stands for one
  // whole label and the subject does not count. A dot at its end is dropped. Throws
  // boost::system::system_error if it cannot be one, as ".org".
  void set_host(const std::string& name) { core_.engine().set_host(name); }

  // Before the handshake, by a client: any certificate will do, so that anybody between
  // the two ends can read and write everything. For tests, and for programs that look at
  // the certificate after the handshake. A host name is sent if there is one.
  void skip_verification() { core_.engine().skip_verification(); }

  // Before the handshake, by a server: the client must show a certificate for which the
  // context's authorities vouch (load_verify_file, add_certificate_authority).
  void require_certificate() { core_.engine().require_certificate(); }

  template <vigil::detail::time_point_like Time>
  void set_read_deadline(const Time& t) {
    core_.below().set_read_deadline(t);
  }

  template <vigil::detail::time_point_like Time>
  void set_write_deadline(const Time& t) {
    core_.below().set_write_deadline(t);
    core_.tell_stalled();
  }

  template <vigil::detail::time_point_like Time>
  void set_deadline(const Time& t) {
    core_.below().set_deadline(t);
    core_.tell_stalled();
  }

  // The first call; under both deadlines. Again after success: nothing; after an error of
  // TLS the same one. Until it has succeeded, reads and writes fail with not_connected.
  // Additional errors: those of TLS, tls_error.
  //
  // A client verifies the certificate and its name, unless the stream itself is
  // told to skip_verification(); without set_host() the handshake does not begin. A
  // server asks for no certificate without require_certificate(), or verify_peer as
  // the mode of its context. Only tls_client_context() has the system's roots;
  // nothing is added to a context that the program made, nor changed there. A
  // verify callback of the context is asked as well, and may accept a certificate
  // that OpenSSL would refuse. A session that the program has given
  // (SSL_set_session) is offered only if its certificate was verified by OpenSSL
  // itself, is not out of date, and has the name that is asked for now; otherwise
  // there is a full handshake.
  //
  // Waits on a fiber (both deadlines): throws stopped, wrong_place.
  void handshake(handshake_type type, boost::system::error_code& error) {
    core_.handshake(type == boost::asio::ssl::stream_base::server, error);
  }

  // As of deadline_stream. Additional errors: stream_truncated, those of TLS.
  // Waits on a fiber (the read deadline): throws stopped, wrong_place.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    return core_.read_some(buffers, error);
  }

  // As of deadline_stream; at most 16 KiB. See above for timeouts.
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
    return core_.write_some(buffers, error);
  }

  // Under the write deadline: nothing more will be written, which the other end reads as
  // eof; later writes fail with `shut_down`. Bytes that the other end still sends can be
  // read. Again: nothing.
  //
  // A peer that closes its connection without that is reported as
  // asio::ssl::error::stream_truncated: somebody may have cut off the rest. Bytes left
  // unread at close() make TCP reset the connection, and so may those that the peer's TLS
  // sent by itself (session tickets): to part in peace, shutdown(), read to the eof,
  // close().
  //
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  void shutdown(boost::system::error_code& error) { core_.shutdown(error); }

  // The same; throw boost::system::system_error.
  void handshake(handshake_type type) {
    detail::or_throw("handshake", [&](auto& error) { handshake(type, error); });
  }

  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    return detail::or_throw("read_some", [&](auto& error) { return read_some(buffers, error); });
  }

  template <class Buffers>
  std::size_t write_some(const Buffers& buffers) {
    return detail::or_throw("write_some", [&](auto& error) { return write_some(buffers, error); });
  }

  void shutdown() {
    detail::or_throw("shutdown", [&](auto& error) { shutdown(error); });
  }

  // As of deadline_stream: sends nothing; see shutdown().
  // Waits on a fiber (the calls that it ends): throws wrong_place.
  void close() { core_.close(); }

 private:
  detail::tls_core<Stream> core_;
};

}  // namespace vigil::io::inline VIGIL_ABI

template <>
struct boost::system::is_error_code_enum<vigil::io::tls_error> : std::true_type {};
