// io::serve_each with TLS: the handshake in the first call, and bytes that lie decrypted.
#include "support/in_runtime.hpp"
#include "tls/tls_transports.hpp"

#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve_each.hpp>
#include <vigil/io/tls.hpp>

#include <cstddef>
#include <string>
#include <utility>

#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <doctest/doctest.h>

using namespace vigil::io_testing;
using vigil::io::afterwards;

namespace {

using client_stream = vigil::io::tls_stream<vigil::io::memory_stream>;

struct secure_session {
  bool is_greeted = false;
  int lines = 0;
};

struct secure_lines {
  client_stream wrap(vigil::io::memory_stream below) const {
    return client_stream(contexts().server, std::move(below));
  }

  template <class Connection>
  afterwards operator()(Connection& peer, const vigil::context&) const {
    if (peer.is_idle()) return afterwards::close;
    error_code error;
    if (!peer.state().is_greeted) {
      peer.stream().handshake(stream_base::server, error);
      peer.state().is_greeted = true;
      return error ? afterwards::close : afterwards::keep;
    }
    // At most a line at a time, so that the rest stays in OpenSSL's buffer.
    std::string line;
    for (char c = 0; c != '\n'; line += c) {
      if (peer.stream().read_some(asio::buffer(&c, 1), error) == 0) return afterwards::close;
    }
    asio::write(
        peer.stream(), asio::buffer(std::to_string(++peer.state().lines) + " " + line), error);
    return error ? afterwards::close : afterwards::keep;
  }
};

}  // namespace

TEST_SUITE("tls serve_each") {
  TEST_CASE("requests in one record are all answered, and there is no fiber between calls") {
    for_each_seed(3, [] {
      vigil::io::memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] {
        vigil::io::serve_each<secure_session>(
            stopping.ctx, acceptor, secure_lines{}, {.idle = 1min});
      });
      vigil::testing::settle();
      const std::size_t without = vigil::stats().fibers_alive;
      client_stream client(contexts().client, acceptor.connect());
      client.set_host("localhost");
      client.handshake(stream_base::client);
      std::string kept;
      const auto next = [&] {
        error_code error;
        const std::size_t n = asio::read_until(client, asio::dynamic_buffer(kept), '\n', error);
        std::string line = kept.substr(0, n);
        kept.erase(0, n);
        return line;
      };
      int lines = 0;
      for (int i = 0; i < 3; ++i) {
        asio::write(client, asio::buffer(std::string("a\nb\n")));
        CHECK(next() == std::to_string(++lines) + " a\n");
        CHECK(next() == std::to_string(++lines) + " b\n");
        vigil::testing::settle();
        CHECK(vigil::stats().fibers_alive == without);
      }
      const auto start = vigil::clock::now();
      CHECK(next() == "");
      CHECK(since(start) == 1min);
      stopping.cancel();
      server.join();
    });
  }

  TEST_CASE("a wrap that throws ends its connection alone") {
    struct sometimes : secure_lines {
      explicit sometimes(int& n) : count(&n) {}

      client_stream wrap(vigil::io::memory_stream below) const {
        if (++*count == 1) throw boost::system::system_error(asio::error::no_memory);
        return secure_lines::wrap(std::move(below));
      }

      int* count;
    };

    in_virtual([] {
      int count = 0;
      vigil::io::memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn(
          [&] { vigil::io::serve_each<secure_session>(stopping.ctx, acceptor, sometimes(count)); });
      vigil::io::memory_stream refused = acceptor.connect();
      char c = 0;
      const auto [error, n] =
          refused.async_read_some(asio::buffer(&c, 1), asio::as_tuple(vigil::io::use_fiber));
      CHECK(error == asio::error::eof);
      client_stream client(contexts().client, acceptor.connect());
      client.set_host("localhost");
      client.handshake(stream_base::client);
      stopping.cancel();
      server.join();
    });
  }
}
