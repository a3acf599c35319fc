// Tests what is spoken over TLS, client and server in one program, on virtual time.
//! [recipe]
#include "../../io/certificate.hpp"  // makes a certificate on the spot

#include <vigil/io/memory_stream.hpp>
#include <vigil/io/tls.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace asio = boost::asio;
namespace io = vigil::io;
using namespace std::chrono_literals;
using stream = io::tls_stream<io::memory_stream>;

int main() {
  return vigil::testing::run_virtual([] {
    example::tls_contexts contexts;  // the client's trusts the server's certificate
    auto [near, far] = io::memory_pipe();

    stream server(contexts.server, std::move(near));
    auto serving = vigil::spawn([&server] {
      server.set_deadline(vigil::deadline_in(10s));  // one that says nothing is not waited for
      server.handshake(asio::ssl::stream_base::server);
      boost::system::error_code end;
      std::string line;
      asio::read_until(server, asio::dynamic_buffer(line), '\n', end);
      std::puts(end == asio::error::timed_out ? "the client says nothing" : line.c_str());
    });

    stream client(contexts.client, std::move(far));
    client.set_host("localhost");  // the name that the certificate must have
    client.handshake(asio::ssl::stream_base::client);
    std::printf("%s\n", SSL_get_version(client.native_handle()));
    vigil::sleep_for(11s);  // says nothing
    serving.join();
  });
}

//! [recipe]
