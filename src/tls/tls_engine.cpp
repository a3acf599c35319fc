#include <vigil/fiber.hpp>
#include <vigil/io/tls.hpp>

#include <algorithm>
#include <climits>
#include <new>
#include <optional>
#include <string>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// OpenSSL keeps its errors per thread: each function here reads them before it returns,
// and none waits. Nor may a function that OpenSSL calls: a wait there cannot be refused
// with an exception, which OpenSSL's own code would not survive, so it ends the program.
namespace VIGIL_IO {
namespace detail {

namespace {

boost::system::error_code last_error() noexcept {
  return {static_cast<int>(::ERR_get_error()), boost::asio::error::get_ssl_category()};
}

// Guards calls in which OpenSSL may call the user's functions.
class without_waits {
 public:
  without_waits() noexcept {
    if (this_fiber::id() != 0) unmoved_.emplace();  // a plain thread needs no guard
  }

 private:
  std::optional<this_fiber::no_park> unmoved_;
};

SSL* made_for(SSL_CTX* context) {
  ::ERR_clear_error();
  SSL* const ssl = ::SSL_new(context);
  if (ssl == nullptr) throw boost::system::system_error(last_error(), "vigil::io::tls_stream");
  return ssl;
}

int clipped(std::size_t size) noexcept {
  constexpr std::size_t record = 16 * 1024;
  return static_cast<int>(size < record ? size : record);
}

}  // namespace

tls_engine::tls_engine(SSL_CTX* context) : ssl_(made_for(context)) {
  in_ = ::BIO_new(::BIO_s_mem());
  out_ = ::BIO_new(::BIO_s_mem());
  if (in_ == nullptr || out_ == nullptr) {
    ::BIO_free(in_);
    ::BIO_free(out_);
    ::SSL_free(ssl_);
    throw std::bad_alloc();
  }
  BIO_set_mem_eof_return(in_, -1);  // empty: more may come
  ::SSL_set_bio(ssl_, in_, out_);   // ssl_ owns them now
  ::BIO_up_ref(out_);               // still read after send_close_notify()
  SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE);
  SSL_set_mode(ssl_, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_set_mode(ssl_, SSL_MODE_RELEASE_BUFFERS);
  ::SSL_set_options(ssl_, SSL_OP_NO_RENEGOTIATION);
}

tls_engine::~tls_engine() {
  ::SSL_free(ssl_);
  ::BIO_free(out_);
}

void tls_engine::set_host(const std::string& name) {
  const char* const function = "vigil::io::tls_stream::set_host";
  // A final dot marks a whole name; certificates leave it out, and it is not sent.
  const std::string whole = name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
  if (name.starts_with('.')) {
    throw boost::system::system_error(
        boost::asio::error::invalid_argument,
        std::string(function) +
            ": a host name must not begin with a dot, which for OpenSSL would mean each name that "
            "ends so; give the whole name");
  }
  // OpenSSL would not look past a 0.
  if (whole.empty() || whole.find('\0') != whole.npos) {
    throw boost::system::system_error(boost::asio::error::invalid_argument, function);
  }
  ::ERR_clear_error();
  X509_VERIFY_PARAM* const param = ::SSL_get0_param(ssl_);
  // This call's name replaces an earlier one.
  ::X509_VERIFY_PARAM_set1_host(param, nullptr, 0);
  ::X509_VERIFY_PARAM_set1_ip(param, nullptr, 0);
  SSL_set_tlsext_host_name(ssl_, nullptr);
  // An address is checked against the certificate's addresses, and is not sent.
  if (::X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str()) == 1) {
    has_host_ = true;
    return;
  }
  ::ERR_clear_error();
  // As in Go, the list of names counts and the subject, which was never meant for host
  // names, does not; a star stands for a whole label.
  ::SSL_set_hostflags(ssl_,
                      X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  has_host_ = ::SSL_set1_host(ssl_, whole.c_str()) == 1 &&
              SSL_set_tlsext_host_name(ssl_, whole.c_str()) == 1;
  if (!has_host_) throw boost::system::system_error(last_error(), function);
}

void tls_engine::require_certificate() {
  static constexpr unsigned char own_sessions[] = "vigil";
  // Without a session id context OpenSSL refuses sessions of peers that it has verified.
  // It takes any that has at most 32 bytes.
  static_assert(sizeof own_sessions <= SSL_MAX_SID_CTX_LENGTH);
  ::SSL_set_session_id_context(ssl_, own_sessions, sizeof own_sessions);
  constexpr int mode = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  ::SSL_set_verify(ssl_, mode, ::SSL_get_verify_callback(ssl_));
}

// Sets the connection's own mode: the context's is the program's, and may be shared.
boost::system::error_code tls_engine::before_client() noexcept {
  if (verifies_ && !has_host_) return tls_error::no_host_name;
  const int mode = verifies_ ? SSL_VERIFY_PEER : SSL_VERIFY_NONE;
  ::SSL_set_verify(ssl_, mode, ::SSL_get_verify_callback(ssl_));
  // OpenSSL verifies nothing when it resumes a session. So a session that would not do is
  // not offered, and the handshake is a full one.
  if (verifies_ && SSL_in_before(ssl_) && ::SSL_get0_session(ssl_) != nullptr) {
    X509* const shown = ::SSL_get0_peer_certificate(ssl_);
    const bool is_out_of_date =
        shown != nullptr && ::X509_cmp_current_time(::X509_get0_notAfter(shown)) <= 0;
    if (is_out_of_date || !has_verified()) ::SSL_set_session(ssl_, nullptr);
  }
  return {};
}

// Returns whether the session's certificate has been verified, for any name, and has the
// name or the address that is asked for now.
bool tls_engine::has_verified() const noexcept {
  X509* const shown = ::SSL_get0_peer_certificate(ssl_);
  if (shown == nullptr || ::SSL_get_verify_result(ssl_) != X509_V_OK) return false;
  X509_VERIFY_PARAM* const param = ::SSL_get0_param(ssl_);
  if (char* const address = ::X509_VERIFY_PARAM_get1_ip_asc(param)) {
    const bool has_it = ::X509_check_ip_asc(shown, address, 0) == 1;
    OPENSSL_free(address);
    return has_it;
  }
  const unsigned flags = ::X509_VERIFY_PARAM_get_hostflags(param);
  int i = 0;
  while (const char* const name = ::X509_VERIFY_PARAM_get0_host(param, i++)) {
    if (::X509_check_host(shown, name, 0, flags, nullptr) == 1) return true;
  }
  return false;
}

boost::system::error_code tls_engine::error_of(int result) const noexcept {
  switch (::SSL_get_error(ssl_, result)) {
    case SSL_ERROR_NONE:
      return {};
    case SSL_ERROR_WANT_READ:
      return boost::asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return boost::asio::error::eof;
    case SSL_ERROR_SSL:
      return last_error();
    default:
      return boost::asio::ssl::error::unexpected_result;
  }
}

void tls_engine::handshake(bool as_server, boost::system::error_code& error) noexcept {
  const without_waits guard;
  error = untrusted_;
  if (error != boost::asio::error::not_connected) return;  // the handshake is over, well or not
  if (!as_server && (error = before_client())) return;
  ::ERR_clear_error();
  error = error_of(as_server ? ::SSL_accept(ssl_) : ::SSL_connect(ssl_));
  if (error == boost::asio::error::would_block) return;
  if (!error && ::SSL_is_server(ssl_) == 0 && verifies_) {
    // With some ciphers a server shows no certificate, and there was nothing to verify.
    const bool is_shown = ::SSL_get0_peer_certificate(ssl_) != nullptr;
    const bool is_resumed = ::SSL_session_reused(ssl_) == 1;
    if (!is_shown || (is_resumed && !has_verified())) error = tls_error::no_certificate;
  }
  untrusted_ = error;
}

std::size_t tls_engine::read(boost::asio::mutable_buffer to,
                             boost::system::error_code& error) noexcept {
  const without_waits guard;
  if (error = untrusted_; error) return 0;
  ::ERR_clear_error();
  const int n = ::SSL_read(ssl_, to.data(), clipped(to.size()));
  error = error_of(n);
  answer_keys();
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

bool tls_engine::has_input() const noexcept {
  return BIO_ctrl_pending(in_) != 0 || ::SSL_has_pending(ssl_) != 0;
}

// Sends the answer to new keys. OpenSSL itself sends it only with the next write, or
// before it reads the next new keys.
void tls_engine::answer_keys() noexcept {
  if (::SSL_get_key_update_type(ssl_) != SSL_KEY_UPDATE_NOT_REQUESTED) return;
  if (::SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) ::SSL_do_handshake(ssl_);
  ::ERR_clear_error();
}

std::size_t tls_engine::write(boost::asio::const_buffer from,
                              boost::system::error_code& error) noexcept {
  const without_waits guard;
  if (error = untrusted_; error) return 0;
  ::ERR_clear_error();
  const int n = ::SSL_write(ssl_, from.data(), clipped(from.size()));
  error = error_of(n);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

void tls_engine::send_close_notify(boost::system::error_code& error) noexcept {
  const without_waits guard;
  if (error = untrusted_; error) return;
  ::ERR_clear_error();
  // Half a message from the other end may have arrived, and OpenSSL wants it whole.
  if (const int whole = ::SSL_do_handshake(ssl_); whole != 1) {
    error = error_of(whole);
    return;
  }
  BIO* const nowhere = ::BIO_new(::BIO_s_null());
  if (nowhere == nullptr) {
    error = boost::asio::error::no_memory;
    return;
  }
  // 0 means that the goodbye is sent, and that of the other end not yet received.
  const int result = ::SSL_shutdown(ssl_);
  if (result < 0) {
    error = error_of(result);
    ::BIO_free(nowhere);
    return;
  }
  error.clear();
  // OpenSSL still answers new keys, but the other end need not read behind a goodbye.
  ::SSL_set0_wbio(ssl_, nowhere);
}

void tls_engine::put_input(boost::asio::const_buffer from) {
  const int size = static_cast<int>(from.size());
  if (::BIO_write(in_, from.data(), size) != size) throw std::bad_alloc();
}

std::size_t tls_engine::take_output(boost::asio::mutable_buffer to) noexcept {
  const int n = ::BIO_read(out_, to.data(), static_cast<int>(to.size()));
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t tls_engine::see_output(boost::asio::mutable_buffer to) const noexcept {
  char* from = nullptr;
  const long size = BIO_get_mem_data(out_, &from);
  if (size <= 0) return 0;
  return boost::asio::buffer_copy(to, boost::asio::buffer(from, static_cast<std::size_t>(size)));
}

void tls_engine::drop_output(std::size_t n) noexcept {
  char dropped[1024];
  while (n != 0)
    n -= take_output(boost::asio::buffer(dropped, std::min(n, sizeof dropped)));
}

std::size_t tls_engine::output_size() const noexcept {
  return BIO_ctrl_pending(out_);
}

}  // namespace detail

namespace {

// Boost's base class has no virtual destructor; nothing is destroyed through it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"

class category_of_tls final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "vigil.tls"; }

  std::string message(int code) const override {
    switch (static_cast<tls_error>(code)) {
      case tls_error::no_host_name:
        return "no host name to verify: call set_host() before handshake(client), or "
               "skip_verification()";
      case tls_error::no_certificate:
        return "the server has shown no certificate, and resumed no session that is verified";
    }
    return "unknown error of vigil's TLS";
  }
};

#pragma GCC diagnostic pop

}  // namespace

const boost::system::error_category& tls_category() noexcept {
  static const category_of_tls one;
  return one;
}

boost::asio::ssl::context tls_client_context() {
  using boost::asio::ssl::context;
  context made(context::tls_client);
  ::ERR_clear_error();
  if (SSL_CTX_set_min_proto_version(made.native_handle(), TLS1_2_VERSION) != 1) {
    throw boost::system::system_error(detail::last_error(), "vigil::io::tls_client_context");
  }
  made.set_default_verify_paths();
  made.set_verify_mode(boost::asio::ssl::verify_peer);
  return made;
}
}  // namespace VIGIL_IO
