// tls_stream<Stream>: TLS with the deadlines of a deadline_stream, like Go's tls.Conn.
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
// As in Go, a client verifies the server's certificate and name, whatever the verify mode
// of the context, and a server asks for no certificate unless told to: see handshake().
//
// An asio::ssl::stream does not allow two operations that different fibers begin. Here
// one fiber may read while another writes, on any workers: OpenSSL is entered by one at a
// time, and never during a wait. The library vigil-tls is separate, so that only its
// users need OpenSSL.
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

namespace VIGIL_IO {

// tls_error: the reasons, beside OpenSSL's, for which a client's handshake is refused.
// Thread safety: constants.
enum class tls_error {
  no_host_name = 1,  // neither set_host() nor skip_verification()
  no_certificate,    // the server has shown none, not even in a resumed session
};

// Returns the category of tls_error. Throws nothing. Thread safety: any thread. Lifetime:
// as long as the program. Cost: a look at a constant.
VIGIL_API const boost::system::error_category& tls_category() noexcept;

// Makes an error_code of a tls_error, for comparisons. Throws nothing. Thread safety: any
// thread. Cost: no allocation.
inline boost::system::error_code make_error_code(tls_error e) noexcept {
  return {static_cast<int>(e), tls_category()};
}

// A context for clients: TLS 1.2 or later, with the system's trusted roots from where
// OpenSSL looks for them (SSL_CERT_FILE, SSL_CERT_DIR; on Debian the package
// ca-certificates). More may be added. Make one for all connections. Throws
// boost::system::system_error. Thread safety: any thread; a context that connections use
// is not to be changed. Lifetime: it must outlive its streams. Shutdown: it belongs to no
// run. Cost: reading the roots takes milliseconds. Go: tls.Config.
VIGIL_API boost::asio::ssl::context tls_client_context();

// tls_stream<Stream>: a deadline_stream with TLS. It has all members of one, so code that
// is a template over the stream takes both.
//
// Throws what deadline_stream throws, with errors of TLS; the constructor throws if
// OpenSSL has no memory. Thread safety: as for deadline_stream, several fibers may call
// all members at a time, except those for use before the handshake. Lifetime: that of
// deadline_stream; the asio::ssl::context must outlive the stream. Shutdown: a call that
// would wait throws `stopped`; a write that it cuts off ends writing. Cost: 34 KiB of
// buffers for a connection, beside OpenSSL's. Go: tls.Conn.
//
// OpenSSL's callbacks (verification, names, ALPN, key log, info) run on the calling
// fiber, inside OpenSSL. They must neither wait nor throw; a wait ends the program with a
// message (this_fiber::no_park). Prepare what they need before the handshake, and pass on
// results by try_send.
//
// Timeouts: a read that timed out, and a handshake that timed out while it waited for the
// other end, may be called again with a later deadline; the bytes received so far are
// kept. A write that fails when a part of its record may have been sent (at a deadline,
// after an idle time, or because its fiber was stopped) ends writing for good: each later
// write fails in the same way, but reads continue. A write whose deadline had passed
// before it began, and one stopped while it waited for another, have sent nothing and
// break nothing. Calls made during a handshake wait until it has ended.
//
// Half-received messages: while half of a TLS message (a session ticket, new keys) has
// arrived, nothing can be sealed. A write, or shutdown(), waits under the write deadline
// until a reading fiber has received the rest, or reads it itself. If the deadline comes,
// nothing has been sent and nothing is broken. A read called meanwhile waits for the
// write.
//
// Errors of TLS have asio::error::get_ssl_category(). A read or a handshake that fails
// with one has sent the other end the reason (a fatal alert). There is no renegotiation.
// New keys of TLS 1.3 are answered at once, even by a fiber that only reads, without
// waiting for room or for another fiber's write. But when 64 KiB of such answers have
// piled up because the other end does not read, the next read sends them first, under the
// write deadline.
template <class Stream>
class tls_stream {
 public:
  using next_layer_type = deadline_stream<Stream>;
  using executor_type = typename next_layer_type::executor_type;
  using handshake_type = boost::asio::ssl::stream_base::handshake_type;

  // `args` construct the stream below. Throws boost::system::system_error if OpenSSL has
  // no memory.
  template <class... Args>
    requires std::is_constructible_v<next_layer_type, Args...>
  explicit tls_stream(boost::asio::ssl::context& context, Args&&... args)
      : core_(context.native_handle(), std::forward<Args>(args)...) {}

  tls_stream(tls_stream&&) = default;
  tls_stream& operator=(tls_stream&&) = default;

  // The stream below. It carries the bytes of TLS, so nothing else should read or write
  // there.
  next_layer_type& next_layer() noexcept { return core_.below(); }

  const next_layer_type& next_layer() const noexcept { return core_.below(); }

  executor_type get_executor() { return core_.below().get_executor(); }

  // For settings before the handshake, and queries after it.
  SSL* native_handle() noexcept { return core_.engine().native_handle(); }

  // For clients, before the handshake: the name, or address, that is requested and that
  // the certificate must contain: in its list of names (the subject does not count),
  // where a star stands for one whole label. A trailing dot is dropped. Throws
  // boost::system::system_error if the name cannot be valid, such as ".org".
  void set_host(const std::string& name) { core_.engine().set_host(name); }

  // For clients, before the handshake: accepts any certificate, so anybody between the
  // two ends can read and change everything. For tests, and for programs that check the
  // certificate after the handshake. A host name, if set, is sent.
  void skip_verification() { core_.engine().skip_verification(); }

  // For servers, before the handshake: the client must show a certificate that the
  // context's authorities have signed (load_verify_file, add_certificate_authority).
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

  // Like deadline_stream's.
  void set_no_delay(bool at_once) { core_.below().set_no_delay(at_once); }

  // Like deadline_stream's, and to be called before the handshake, which the list limits,
  // too. Bytes of TLS count as progress. If the list ends a write that waits, this ends
  // writing for good, as above; for a read or a handshake it ends only that wait.
  void set_idle_list(idle_list& list) noexcept { core_.below().set_idle_list(list); }

  // Must be the first call; runs under both deadlines. Until it has succeeded, reads and
  // writes fail with not_connected. Called again, it does nothing after success, and
  // repeats an error of TLS, unless a deadline has passed. Additional errors: those of
  // TLS, and tls_error.
  //
  // A client verifies the certificate and its name, unless skip_verification() was
  // called; without set_host() it fails before anything is sent. It trusts the roots of
  // the context, which is not changed; only tls_client_context() has the system's. A
  // verify callback of the context is also asked, and may accept a certificate that
  // OpenSSL would refuse. A session to resume (SSL_set_session) is offered only if
  // OpenSSL itself has verified its certificate, which must still be valid and have the
  // requested name.
  //
  // A server asks for no certificate, unless require_certificate() was called or the mode
  // of its context is verify_peer.
  //
  // Waits on a fiber (both deadlines): throws stopped, wrong_place.
  void handshake(handshake_type type, boost::system::error_code& error) {
    core_.handshake(type == boost::asio::ssl::stream_base::server, error);
  }

  // Like deadline_stream's. Additional errors: stream_truncated, and those of TLS.
  // Waits on a fiber (the read deadline): throws stopped, wrong_place.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    return core_.read_some(buffers, error);
  }

  // Like deadline_stream's; writes at most 16 KiB. Timeouts are described above.
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
    return core_.write_some(buffers, error);
  }

  // The error of the deadline and of close() with which a call would now fail at once, as
  // for deadline_stream. An error of TLS, which only the next call itself finds, is not
  // among them.
  boost::system::error_code read_error() const noexcept { return core_.below().read_error(); }

  boost::system::error_code write_error() const noexcept { return core_.below().write_error(); }

  // Ends writing: the other end reads eof, and later writes fail with `shut_down`.
  // Reading continues. A second call does nothing; if the first was cut off, it fails
  // with the same error, because the other end has not learnt of the end.
  //
  // If the other end closes its connection without a shutdown(), a read fails with
  // asio::ssl::error::stream_truncated, because an attacker may have cut off the rest.
  // Unread bytes at close() make TCP reset the connection, even those that the other
  // end's TLS sent by itself (session tickets). To end cleanly: shutdown(), read to the
  // eof, close(). Nothing is sent behind the goodbye, not even an answer to new keys.
  //
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  void shutdown(boost::system::error_code& error) { core_.shutdown(error); }

  // The same four; throw boost::system::system_error.
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

  // shutdown() under the name that deadline_stream has for it.
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  void close_write(boost::system::error_code& error) { shutdown(error); }

  // Like deadline_stream's; sends nothing, see shutdown().
  // Waits on a fiber (the calls that it ends): throws wrong_place.
  void close() { core_.close(); }

 private:
  friend struct detail::arrival_access;

  detail::tls_core<Stream> core_;
};

}  // namespace VIGIL_IO

template <>
struct boost::system::is_error_code_enum<vigil::io::tls_error> : std::true_type {};
