// Functions that OpenSSL calls in the course of a handshake: they may not wait.
#include "support/child.hpp"
#include "support/note.hpp"
#include "tls/tls_transports.hpp"

#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <openssl/ssl.h>

namespace vigil::io_testing {
namespace {

void (*each_does)() = nullptr;

void verifies(example::tls_contexts& c) {
  c.client.set_verify_callback([](bool accepted, asio::ssl::verify_context&) {
    each_does();
    return accepted;
  });
}

void hears_the_name(example::tls_contexts& c) {
  SSL_CTX_set_tlsext_servername_callback(
      c.server.native_handle(), +[](SSL*, int*, void*) {
        each_does();
        return SSL_TLSEXT_ERR_OK;
      });
}

void chooses_a_protocol(example::tls_contexts& c) {
  static constexpr unsigned char offered[] = {2, 'h', 'i'};
  REQUIRE(SSL_CTX_set_alpn_protos(c.client.native_handle(), offered, sizeof offered) == 0);
  SSL_CTX_set_alpn_select_cb(
      c.server.native_handle(),
      [](SSL*,
         const unsigned char** chosen,
         unsigned char* size,
         const unsigned char* from,
         unsigned,
         void*) {
        each_does();
        *size = from[0];
        *chosen = from + 1;
        return SSL_TLSEXT_ERR_OK;
      },
      nullptr);
}

void logs_keys(example::tls_contexts& c) {
  SSL_CTX_set_keylog_callback(c.server.native_handle(),
                              [](const SSL*, const char*) { each_does(); });
}

void watches(example::tls_contexts& c) {
  SSL_CTX_set_info_callback(c.client.native_handle(), [](const SSL*, int, int) { each_does(); });
}

constexpr void (*all_kinds[])(example::tls_contexts&) = {
    verifies, hears_the_name, chooses_a_protocol, logs_keys, watches};

// Two ends shake hands and exchange a line, with one kind of callback set.
void exchange(void (*set)(example::tls_contexts&)) {
  example::tls_contexts own(example::make_certificate());
  set(own);
  auto [near, far] = memory_connection();
  io::tls_stream<io::memory_stream> server(own.server, std::move(near));
  io::tls_stream<io::memory_stream> client(own.client, std::move(far));
  client.set_host("localhost");
  auto answers = spawn([&server] {
    server.handshake(stream_base::server);
    asio::write(server, asio::buffer("hello", 5));
    server.shutdown();
  });
  client.handshake(stream_base::client);
  std::string text(5, ' ');
  asio::read(client, asio::buffer(text));
  CHECK(text == "hello");
  answers.join();
}

}  // namespace

TEST_SUITE("tls_stream: callbacks") {
  TEST_CASE("calls that do not wait are allowed there") {
    static const auto calls = make_channel<int>(1000);
    for (const auto set : all_kinds) {
      testing_support::for_each_seed(1, [set] {
        each_does = [] { CHECK(calls.try_send(1)); };
        exchange(set);
        CHECK(calls.try_recv());
        while (calls.try_recv()) {
        }
      });
    }
  }

  TEST_CASE("child: a callback of TLS waits" * doctest::skip()) {
    const char* const which = std::getenv("VIGIL_TLS_CALLBACK");
    REQUIRE(which != nullptr);
    each_does = [] { sleep_for(std::chrono::milliseconds(1)); };
    vigil::run([&] { exchange(all_kinds[std::atoi(which)]); });
  }

  TEST_CASE("a wait there ends the program with a message") {
    for (std::size_t i = 0; i < std::size(all_kinds); ++i) {
      const std::string which = std::to_string(i);
      const testing_support::child_result r = testing_support::run_child(
          "child: a callback of TLS waits", {{"VIGIL_TLS_CALLBACK", which.c_str()}});
      NOTE("callback ", which, ", output: ", r.output);
      CHECK(r.died_by(SIGABRT));
      CHECK(r.says("is about to wait under this_fiber::no_park"));
      CHECK(r.says("OpenSSL for a callback"));
    }
  }
}

}  // namespace vigil::io_testing
