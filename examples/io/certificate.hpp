// A key and a self-signed certificate made on the spot, for examples and tests. A real
// server reads both from files (use_certificate_chain_file).
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace example {

template <auto Free>
struct freed_by {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};

struct certificate {
  std::string key;   // PEM
  std::string text;  // PEM
};

// Makes a certificate for an hour, and for these names and addresses. For "" only its
// subject says localhost, as it was before there were lists of names.
inline certificate make_certificate(const std::string& names = "DNS:localhost,IP:127.0.0.1") {
  const auto require = [](auto* p) {
    if (p == nullptr) throw std::runtime_error("OpenSSL cannot make a certificate");
    return p;
  };
  using bio = std::unique_ptr<BIO, freed_by<BIO_free>>;
  const auto text_of = [](const bio& b) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(b.get(), &data);
    return std::string(data, static_cast<std::size_t>(size));
  };

  const std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>> key(require(EVP_EC_gen("P-256")));
  const std::unique_ptr<X509, freed_by<X509_free>> made(require(X509_new()));
  X509_set_version(made.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_NAME* const name = X509_get_subject_name(made.get());
  X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(made.get(), name);
  X509_set_pubkey(made.get(), key.get());
  if (!names.empty()) {
    const std::unique_ptr<X509_EXTENSION, freed_by<X509_EXTENSION_free>> list(
        require(X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str())));
    X509_add_ext(made.get(), list.get(), -1);
  }
  X509_sign(made.get(), key.get(), EVP_sha256());

  const bio key_text(require(BIO_new(BIO_s_mem())));
  const bio text(require(BIO_new(BIO_s_mem())));
  PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  PEM_write_bio_X509(text.get(), made.get());
  return {text_of(key_text), text_of(text)};
}

// The contexts of servers, and of the clients that trust them.
struct tls_contexts {
  explicit tls_contexts(const certificate& c = make_certificate()) {
    using context = boost::asio::ssl::context;
    server.use_certificate(boost::asio::buffer(c.text), context::pem);
    server.use_private_key(boost::asio::buffer(c.key), context::pem);
    client.add_certificate_authority(boost::asio::buffer(c.text));
    client.set_verify_mode(boost::asio::ssl::verify_peer);
  }

  boost::asio::ssl::context server{boost::asio::ssl::context::tls_server};
  boost::asio::ssl::context client{boost::asio::ssl::context::tls_client};
};

}  // namespace example
