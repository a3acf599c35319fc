// Certificates for the target tls_stream, the names that a client asks for, and random
// numbers that are the same for each input.
#pragma once

#include "certificate.hpp"
#include "fuzz/input.hpp"

#include <vigil/io/memory_stream.hpp>
#include <vigil/io/tls.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace fuzz::tls {

using stream = vigil::io::tls_stream<vigil::io::memory_stream>;
using session = std::unique_ptr<SSL_SESSION, example::freed_by<::SSL_SESSION_free>>;

// --- random numbers

inline std::uint64_t drawn = 0;

inline int draw(unsigned char* to, int n) {
  for (int i = 0; i < n; ++i) {
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    to[i] = static_cast<unsigned char>(drawn >> 56);
  }
  return 1;
}

inline void draw_from_the_start() {
  static const RAND_METHOD method = {nullptr, &draw, nullptr, nullptr, &draw, [] { return 1; }};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  static const int is_set = ::RAND_set_rand_method(&method);
#pragma GCC diagnostic pop
  expect(is_set == 1, "OpenSSL takes the sequence");
  drawn = 1;
}

// --- certificates

// The same certificate, but out of date.
inline example::certificate out_of_date(const example::certificate& of) {
  using bio = std::unique_ptr<BIO, example::freed_by<::BIO_free>>;
  const auto reading = [](const std::string& text) {
    return bio(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  };
  const std::unique_ptr<X509, example::freed_by<::X509_free>> made(
      ::PEM_read_bio_X509(reading(of.text).get(), nullptr, nullptr, nullptr));
  const std::unique_ptr<EVP_PKEY, example::freed_by<::EVP_PKEY_free>> key(
      ::PEM_read_bio_PrivateKey(reading(of.key).get(), nullptr, nullptr, nullptr));
  ::X509_gmtime_adj(::X509_getm_notAfter(made.get()), -60);
  expect(::X509_sign(made.get(), key.get(), ::EVP_sha256()) != 0, "it is signed again");
  const bio out(::BIO_new(::BIO_s_mem()));
  ::PEM_write_bio_X509(out.get(), made.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {of.key, std::string(data, static_cast<std::size_t>(size))};
}

// The servers: one that the client trusts, one whose certificate it does not know, and
// one whose certificate it knows and is out of date.
enum class identity : std::uint8_t { known, foreign, late };

struct contexts {
  contexts() {
    known.client.add_certificate_authority(boost::asio::buffer(late_certificate.text));
    for (example::tls_contexts* const c : {&known, &foreign, &late})
      SSL_CTX_set_session_cache_mode(c->server.native_handle(), SSL_SESS_CACHE_OFF);
  }

  boost::asio::ssl::context& client() { return known.client; }

  boost::asio::ssl::context& server(identity of) {
    return of == identity::known     ? known.server
           : of == identity::foreign ? foreign.server
                                     : late.server;
  }

  example::certificate late_certificate = out_of_date(example::make_certificate());
  example::tls_contexts known;
  example::tls_contexts foreign;
  example::tls_contexts late{late_certificate};
};

// Without a fiber it can only say that there was no handshake.
inline void check_plain_thread(boost::asio::ssl::context& context) {
  vigil::io::detail::tls_engine engine(context.native_handle());
  char byte = 0;
  boost::system::error_code error;
  engine.read(boost::asio::buffer(&byte, 1), error);
  expect(error == boost::asio::error::not_connected, "nothing is read before a handshake");
}

// Made anew now and then, as a certificate is good for an hour.
inline contexts& fresh_contexts() {
  static std::optional<contexts> made;
  static unsigned runs = 0;
  if (runs++ % 1024 == 0) {
    draw_from_the_start();
    made.emplace();
    check_plain_thread(made->client());
  }
  return *made;
}

// --- names

enum class naming : std::uint8_t {
  right,
  address,
  with_dot,
  twice,
  none,
  wrong,
  other,
  unverified
};

inline boost::system::error_code refusal_of(stream& s, const std::string& name) {
  try {
    s.set_host(name);
  } catch (const boost::system::system_error& e) {
    return e.code();
  }
  return {};
}

inline void check_refused_names(stream& s) {
  for (const std::string_view wrong : {"", ".", ".localhost"}) {
    expect(refusal_of(s, std::string(wrong)) == boost::asio::error::invalid_argument,
           "what is no name is refused");
  }
  expect(refusal_of(s, std::string("localhost\0", 10)) == boost::asio::error::invalid_argument,
         "and what ends in a 0");
  expect(refusal_of(s, std::string(256, 'x')).category() == boost::asio::error::get_ssl_category(),
         "and what TLS has no room for");
}

inline void set_name(stream& s, naming name) {
  switch (name) {
    case naming::right:
      return s.set_host("localhost");
    case naming::address:
      return s.set_host("127.0.0.1");
    case naming::with_dot:
      return s.set_host("localhost.");
    case naming::twice:
      s.set_host("127.0.0.2");
      return s.set_host("localhost");
    case naming::none:
      return check_refused_names(s);
    case naming::wrong:
      return s.set_host("127.0.0.2");
    case naming::other:
      return s.set_host("other.example");
    case naming::unverified:
      return s.skip_verification();
  }
}

}  // namespace fuzz::tls
