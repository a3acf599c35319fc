// A user's program with TLS, and with the rest of I/O.
#include <vigil/io.hpp>
#include <vigil/io/tls.hpp>

#include <cstdio>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

int main() {
  return vigil::run([] {
    boost::asio::steady_timer soon(vigil::io::io_context(), std::chrono::milliseconds(1));
    soon.async_wait(vigil::io::use_fiber);
    boost::asio::ssl::context trusted(boost::asio::ssl::context::tls_client);
    vigil::io::tls_stream<boost::asio::ip::tcp::socket> peer(trusted, vigil::io::io_context());
    peer.set_host("example.org");
    std::puts("vigil-tls says hello");
  });
}
