// tls_stream in a program that has set nothing, or the wrong thing: the peers that it
// trusts, and the calls that it refuses.
#include "support/child.hpp"
#include "support/note.hpp"
#include "tls/tls_transports.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

namespace vigil::io_testing {
namespace {

using stream = io::tls_stream<io::memory_stream>;

// A server with a certificate, and the text of that certificate.
struct named_server {
  explicit named_server(example::certificate c = example::make_certificate())
      : known(std::move(c)) {}

  example::certificate known;
  example::tls_contexts contexts{known};

  // The context of a careless program: it knows the certificate, and its mode is not to
  // verify.
  asio::ssl::context careless() const {
    asio::ssl::context made(asio::ssl::context::tls_client);
    made.add_certificate_authority(asio::buffer(known.text));
    return made;
  }
};

struct ends {
  ends(asio::ssl::context& server_side, asio::ssl::context& client_side)
      : ends(server_side, client_side, memory_connection()) {}

  ends(asio::ssl::context& server_side,
       asio::ssl::context& client_side,
       connection<io::deadline_stream<io::memory_stream>> under)
      : server(server_side, std::move(under.near)), client(client_side, std::move(under.far)) {}

  // Both handshakes, and an answer, in whose place a refused client gets the refusal.
  void shake() {
    auto accepting = spawn([this] {
      server.handshake(stream_base::server, of_server);
      if (!of_server) asio::write(server, asio::buffer("x", 1), of_server);
    });
    client.handshake(stream_base::client, of_client);
    char byte = 0;
    if (!of_client) client.read_some(asio::buffer(&byte, 1), of_client);
    if (of_client) client.close();
    accepting.join();
  }

  stream server;
  stream client;
  error_code of_server;
  error_code of_client;
};

struct frees_session {
  void operator()(SSL_SESSION* s) const { SSL_SESSION_free(s); }
};

using session = std::unique_ptr<SSL_SESSION, frees_session>;

int roots_of(asio::ssl::context& c) {
  X509_STORE* const store = SSL_CTX_get_cert_store(c.native_handle());
  return sk_X509_OBJECT_num(X509_STORE_get0_objects(store));
}

// How often a server has asked a client for a certificate.
int asked = 0;

void count_requests(asio::ssl::context& client) {
  asked = 0;
  SSL_CTX_set_client_cert_cb(
      client.native_handle(), +[](SSL*, X509**, EVP_PKEY**) { return ++asked * 0; });
}

}  // namespace

TEST_SUITE("tls_stream: safe by default") {
  TEST_CASE("a client verifies the certificate and its name, whatever the mode of its context") {
    for_each_seed(1, [] {
      named_server known;
      asio::ssl::context careless = known.careless();
      asio::ssl::context ignorant(asio::ssl::context::tls_client);
      ignorant.set_verify_mode(asio::ssl::verify_none);
      const auto error_with = [&](asio::ssl::context& trusted, const char* host) {
        ends e(known.contexts.server, trusted);
        e.client.set_host(host);
        e.shake();
        CHECK(is_of_tls(e.of_server) == is_of_tls(e.of_client));
        return is_of_tls(e.of_client);
      };
      CHECK(!error_with(careless, "localhost"));
      CHECK(!error_with(careless, "127.0.0.1"));
      CHECK(error_with(careless, "example.org"));
      CHECK(error_with(careless, "127.0.0.2"));
      CHECK(error_with(ignorant, "localhost"));
      // The last name counts, whether it is a name or an address.
      ends e(known.contexts.server, careless);
      for (const char* const name : {"127.0.0.2", "example.org", "127.0.0.1", "localhost"})
        e.client.set_host(name);
      e.shake();
      CHECK(!e.of_client);
    });
  }

  TEST_CASE(
      "a client that names no host is refused before it says anything, and may name it then") {
    for_each_seed(1, [] {
      named_server known;
      ends e(known.contexts.server, known.contexts.client);
      error_code error;
      e.client.handshake(stream_base::client, error);
      CHECK(error == io::tls_error::no_host_name);
      CHECK(error.message().find("set_host()") != std::string::npos);
      CHECK(BIO_ctrl_pending(SSL_get_wbio(e.client.native_handle())) == 0);
      char byte = 0;
      e.server.next_layer().set_read_deadline(clock::now() + 1s);
      e.server.next_layer().read_some(asio::buffer(&byte, 1), error);
      CHECK(error == timed_out);
      e.server.next_layer().set_read_deadline(no_deadline);
      CHECK_THROWS_AS(e.client.handshake(stream_base::client), boost::system::system_error);
      e.client.set_host("localhost");
      e.shake();
      CHECK(!e.of_client);
    });
  }

  TEST_CASE("skip_verification() takes any certificate, with a name and without") {
    for_each_seed(1, [] {
      named_server known;
      asio::ssl::context trusted = io::tls_client_context();
      for (const char* const host : {"", "example.org"}) {
        ends e(known.contexts.server, trusted);
        if (*host != 0) e.client.set_host(host);
        e.client.skip_verification();
        e.shake();
        CHECK(!e.of_client);
        CHECK(SSL_get_verify_result(e.client.native_handle()) != X509_V_OK);
        const char* const heard =
            SSL_get_servername(e.server.native_handle(), TLSEXT_NAMETYPE_host_name);
        CHECK(std::string(heard == nullptr ? "" : heard) == host);
      }
      // The name belongs to that stream alone.
      ends e(known.contexts.server, trusted);
      e.client.set_host("localhost");
      e.shake();
      CHECK(is_of_tls(e.of_client));
    });
  }

  TEST_CASE("a server that shows no certificate at all is not trusted") {
    for_each_seed(1, [] {
      asio::ssl::context server(asio::ssl::context::tls_server);
      asio::ssl::context client(asio::ssl::context::tls_client);
      for (asio::ssl::context* const c : {&server, &client}) {
        REQUIRE(SSL_CTX_set_cipher_list(c->native_handle(), "ADH:@SECLEVEL=0") == 1);
        REQUIRE(SSL_CTX_set_max_proto_version(c->native_handle(), TLS1_2_VERSION) == 1);
      }
      SSL_CTX_set_dh_auto(server.native_handle(), 1);
      ends e(server, client);
      e.client.set_host("localhost");
      e.shake();
      CHECK(e.of_client == io::tls_error::no_certificate);
      error_code error;
      e.client.write_some(asio::buffer("x", 1), error);
      CHECK(error);
    });
  }

  TEST_CASE(
      "a session is resumed only if its certificate was verified and has the name asked for") {
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      for_each_seed(1, [version] {
        named_server known;
        SSL_CTX_set_max_proto_version(known.contexts.server.native_handle(), version);
        asio::ssl::context trusting = known.careless();
        asio::ssl::context ignorant(asio::ssl::context::tls_client);

        const auto begin = [&](asio::ssl::context& c, const char* host) {
          ends e(known.contexts.server, c);
          if (host != nullptr) e.client.set_host(host);
          if (host == nullptr || &c == &ignorant) e.client.skip_verification();
          e.shake();
          CHECK(!e.of_client);
          e.client.shutdown();  // OpenSSL resumes no session of a connection without it
          return session(SSL_get1_session(e.client.native_handle()));
        };
        const session verified = begin(trusting, "localhost");
        const session unverified = begin(ignorant, "localhost");
        const session of_nobody = begin(trusting, nullptr);
        struct outcome {
          bool is_trusted;
          bool is_resumed;
          bool operator==(const outcome&) const = default;
        };
        const auto resume = [&](const session& from, asio::ssl::context& c, const char* host) {
          ends e(known.contexts.server, c);
          const session own(SSL_SESSION_dup(from.get()));
          REQUIRE(SSL_set_session(e.client.native_handle(), own.get()) == 1);
          e.client.set_host(host);
          e.shake();
          CHECK(is_of_tls(e.of_server) == is_of_tls(e.of_client));
          return outcome{!e.of_client, SSL_session_reused(e.client.native_handle()) == 1};
        };
        CHECK(resume(verified, trusting, "localhost") == outcome{true, true});
        CHECK(resume(verified, trusting, "127.0.0.1") == outcome{true, true});
        CHECK(resume(of_nobody, trusting, "localhost") == outcome{true, true});
        CHECK(resume(verified, trusting, "example.org") == outcome{false, false});
        CHECK(resume(verified, trusting, "127.0.0.2") == outcome{false, false});
        CHECK(resume(of_nobody, trusting, "example.org") == outcome{false, false});
        CHECK(resume(unverified, ignorant, "localhost") == outcome{false, false});
        CHECK(resume(unverified, ignorant, "example.org") == outcome{false, false});
        // The whole handshake takes place, as such a session deserves.
        CHECK(resume(unverified, trusting, "localhost") == outcome{true, false});

        ends careless(known.contexts.server, ignorant);
        REQUIRE(SSL_set_session(careless.client.native_handle(), unverified.get()) == 1);
        careless.client.skip_verification();
        careless.shake();
        CHECK(!careless.of_client);
        CHECK(SSL_session_reused(careless.client.native_handle()) == 1);
      });
    }
  }

  TEST_CASE(
      "nothing is read or written before a whole handshake, which a read does not go on with") {
    for_each_seed(1, [] {
      named_server known;
      ends e(known.contexts.server, known.contexts.client);
      e.client.set_host("localhost");
      e.client.set_deadline(clock::now() + 1s);
      e.client.handshake(stream_base::client, e.of_client);
      CHECK(e.of_client == timed_out);
      e.client.set_deadline(no_deadline);
      CHECK(tls_read_byte(e.client) == asio::error::not_connected);
      e.client.write_some(asio::buffer("x", 1), e.of_client);
      CHECK(e.of_client == asio::error::not_connected);
      e.client.shutdown(e.of_client);
      CHECK(e.of_client == asio::error::not_connected);
      e.shake();
      CHECK(!e.of_client);
      CHECK(!e.of_server);

      ends other(known.contexts.server, known.contexts.client);
      other.client.set_host("example.org");
      auto accepting = spawn([&] { other.server.handshake(stream_base::server, other.of_server); });
      for (int i = 0; i < 2; ++i) {
        error_code error;
        other.client.handshake(stream_base::client, error);
        CHECK(error.message().find("certificate verify failed") != std::string::npos);
        CHECK(tls_read_byte(other.client) == error);
      }
      accepting.join();
    });
  }

  TEST_CASE("a server requests no certificate unless it is told to") {
    for_each_seed(1, [] {
      named_server known;
      count_requests(known.contexts.client);
      ends quiet(known.contexts.server, known.contexts.client);
      quiet.client.set_host("localhost");
      quiet.shake();
      CHECK(!quiet.of_server);
      CHECK(asked == 0);

      ends strict(known.contexts.server, known.contexts.client);
      strict.client.set_host("localhost");
      strict.server.require_certificate();
      strict.shake();
      CHECK(is_of_tls(strict.of_server));
      CHECK(is_of_tls(strict.of_client));  // the alert that says so
      CHECK(asked == 1);
      CHECK(SSL_CTX_get_verify_mode(known.contexts.server.native_handle()) == SSL_VERIFY_NONE);

      // A client that has a certificate for which the server's context vouches.
      asio::ssl::context shown = known.careless();
      shown.use_certificate(asio::buffer(known.known.text), asio::ssl::context::pem);
      shown.use_private_key(asio::buffer(known.known.key), asio::ssl::context::pem);
      known.contexts.server.add_certificate_authority(asio::buffer(known.known.text));
      ends mutual(known.contexts.server, shown);
      mutual.client.set_host("localhost");
      mutual.server.require_certificate();
      mutual.shake();
      CHECK(!mutual.of_server);
      CHECK(!mutual.of_client);

      // Or through its context, as everywhere in Asio.
      count_requests(known.contexts.client);
      known.contexts.server.set_verify_mode(asio::ssl::verify_peer |
                                            asio::ssl::verify_fail_if_no_peer_cert);
      ends told(known.contexts.server, known.contexts.client);
      told.client.set_host("localhost");
      told.shake();
      CHECK(is_of_tls(told.of_server));
      CHECK(asked == 1);
    });
  }

  TEST_CASE("nothing is added to a context that the program made, nor changed in it") {
    for_each_seed(1, [] {
      named_server known;
      asio::ssl::context own = known.careless();
      for (const bool skips : {false, true}) {
        ends e(known.contexts.server, own);
        e.client.set_host("localhost");
        if (skips) e.client.skip_verification();
        e.shake();
        CHECK(!e.of_client);
        CHECK(roots_of(own) == 1);
        CHECK(roots_of(known.contexts.server) == 0);
        CHECK(SSL_CTX_get_verify_mode(own.native_handle()) == SSL_VERIFY_NONE);
        CHECK(SSL_CTX_get_verify_mode(known.contexts.server.native_handle()) == SSL_VERIFY_NONE);
      }
    });
  }

  TEST_CASE("child: the system trusts a certificate" * doctest::skip()) {
    for_each_seed(1, [] {
      const char* const path = std::getenv("SSL_CERT_FILE");
      REQUIRE(path != nullptr);
      named_server known;
      std::FILE* const file = std::fopen(path, "w");
      REQUIRE(file != nullptr);
      std::fputs(known.known.text.c_str(), file);
      std::fclose(file);
      asio::ssl::context of_system = io::tls_client_context();
      asio::ssl::context own(asio::ssl::context::tls_client);
      own.set_verify_mode(asio::ssl::verify_peer);
      const auto is_trusted = [&](asio::ssl::context& c, const char* host) {
        ends e(known.contexts.server, c);
        e.client.set_host(host);
        e.shake();
        return !e.of_client;
      };
      CHECK(is_trusted(of_system, "localhost"));
      CHECK(!is_trusted(of_system, "example.org"));
      CHECK(!is_trusted(own, "localhost"));
      CHECK(roots_of(own) == 0);
      CHECK(SSL_CTX_get_min_proto_version(of_system.native_handle()) == TLS1_2_VERSION);
      CHECK(SSL_CTX_get_verify_mode(of_system.native_handle()) == SSL_VERIFY_PEER);
    });
  }

  TEST_CASE("a context of vigil's own has the system's roots, the program's own has not") {
    std::string path = std::filesystem::temp_directory_path() / "vigil_roots_XXXXXX";
    const int file = ::mkstemp(path.data());
    REQUIRE(file >= 0);
    ::close(file);
    const auto r =
        run_child("child: the system trusts a certificate", {{"SSL_CERT_FILE", path.c_str()}});
    ::unlink(path.c_str());
    NOTE(r.output);
    CHECK(r.succeeded());
  }

  TEST_CASE("a certificate must name the host in its list of names, and by no part of a wildcard") {
    for_each_seed(1, [] {
      const auto is_trusted = [](const char* names, const char* host) {
        named_server known(example::make_certificate(names));
        ends e(known.contexts.server, known.contexts.client);
        e.client.set_host(host);
        e.shake();
        CHECK(is_of_tls(e.of_server) == is_of_tls(e.of_client));
        return !e.of_client;
      };
      CHECK(is_trusted("DNS:localhost", "localhost"));
      CHECK(!is_trusted("", "localhost"));
      CHECK(!is_trusted("IP:127.0.0.1", "localhost"));
      CHECK(is_trusted("DNS:*.example.org", "far.example.org"));
      CHECK(!is_trusted("DNS:*.example.org", "very.far.example.org"));
      CHECK(!is_trusted("DNS:f*.example.org", "far.example.org"));
      CHECK(!is_trusted("DNS:*r.example.org", "far.example.org"));
    });
  }

  TEST_CASE("a dot before a host name is refused: it would mean any name below it") {
    for_each_seed(1, [] {
      named_server known(example::make_certificate("DNS:far.example.org"));
      ends e(known.contexts.server, known.contexts.client);
      for (const char* const name : {".example.org", ".", "..", ".org."}) {
        CHECK_THROWS_WITH_AS(e.client.set_host(name),
                             doctest::Contains("begin with a dot"),
                             boost::system::system_error);
        CHECK(error_of([&] { e.client.set_host(name); }) == asio::error::invalid_argument);
      }
    });
  }

  TEST_CASE("a dot at the end of a host name is accepted, but neither sent nor compared") {
    for_each_seed(1, [] {
      named_server known;
      ends e(known.contexts.server, known.contexts.client);
      e.client.set_host("localhost.");
      e.shake();
      CHECK(!e.of_client);
      CHECK(std::string(SSL_get_servername(e.server.native_handle(), TLSEXT_NAMETYPE_host_name)) ==
            "localhost");
      ends other(known.contexts.server, known.contexts.client);
      other.client.set_host("example.org.");
      other.shake();
      CHECK(is_of_tls(other.of_client));
      const std::string cut("localhost\0.example.org", 22);
      for (const std::string& bad : {std::string(), std::string("."), cut}) {
        ends none(known.contexts.server, known.contexts.client);
        CHECK(error_of([&] { none.client.set_host(bad); }) == asio::error::invalid_argument);
      }
    });
  }
}

}  // namespace vigil::io_testing
