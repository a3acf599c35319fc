#include <vigil/fiber.hpp>
#include <vigil/io/tls.hpp>

#include <climits>
#include <new>
#include <optional>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// OpenSSL keeps its errors for each thread: each function here looks at them before
// it returns, and none waits. Nor may what OpenSSL calls: a wait cannot be refused with
// an exception, which OpenSSL's own code would not survive, so it ends the program.
namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

namespace {

boost::system::error_code last_error() noexcept {
  return {static_cast<int>(::ERR_get_error()), boost::asio::error::get_ssl_category()};
}

// Around calls in which OpenSSL may call the user's functions.
class without_waits {
 public:
  without_waits() noexcept {
    if (this_fiber::id() != 0) unmoved_.emplace();  // a plain thread stays one
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
  ::SSL_set_bio(ssl_, in_, out_);   // which owns them now
  SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE);
  SSL_set_mode(ssl_, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_set_mode(ssl_, SSL_MODE_RELEASE_BUFFERS);
  ::SSL_set_options(ssl_, SSL_OP_NO_RENEGOTIATION);
}

tls_engine::~tls_engine() {
  ::SSL_free(ssl_);
}

void tls_engine::set_host(const std::string& name) {
  ::ERR_clear_error();
  // An address is looked for among the certificate's addresses, and not sent.
  if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl_), name.c_str()) == 1) return;
  ::ERR_clear_error();
  if (::SSL_set1_host(ssl_, name.c_str()) != 1 ||
      SSL_set_tlsext_host_name(ssl_, name.c_str()) != 1) {
    throw boost::system::system_error(last_error(), "vigil::io::tls_stream::set_host");
  }
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
  ::ERR_clear_error();
  error = error_of(as_server ? ::SSL_accept(ssl_) : ::SSL_connect(ssl_));
}

std::size_t tls_engine::read(boost::asio::mutable_buffer to,
                             boost::system::error_code& error) noexcept {
  const without_waits guard;
  ::ERR_clear_error();
  const int n = ::SSL_read(ssl_, to.data(), clipped(to.size()));
  error = error_of(n);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t tls_engine::write(boost::asio::const_buffer from,
                              boost::system::error_code& error) noexcept {
  const without_waits guard;
  ::ERR_clear_error();
  const int n = ::SSL_write(ssl_, from.data(), clipped(from.size()));
  error = error_of(n);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

void tls_engine::say_goodbye(boost::system::error_code& error) noexcept {
  const without_waits guard;
  ::ERR_clear_error();
  // 0: said, and not yet heard from the other end.
  const int result = ::SSL_shutdown(ssl_);
  error = result < 0 ? error_of(result) : boost::system::error_code();
}

void tls_engine::put_input(boost::asio::const_buffer from) {
  const int size = static_cast<int>(from.size());
  if (::BIO_write(in_, from.data(), size) != size) throw std::bad_alloc();
}

std::size_t tls_engine::take_output(boost::asio::mutable_buffer to) noexcept {
  const int n = ::BIO_read(out_, to.data(), static_cast<int>(to.size()));
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io
