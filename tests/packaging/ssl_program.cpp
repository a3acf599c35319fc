// A program that uses asio::ssl: the linker says if vigil-tls is missing.
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>

int main() {
  return vigil::run([] {
    namespace ssl = boost::asio::ssl;
    ssl::context context(ssl::context::tls_client);
    context.set_verify_mode(ssl::verify_peer);
    boost::asio::io_context io;
    ssl::stream<boost::asio::ip::tcp::socket> stream(io, context);
    boost::system::error_code error;
    stream.handshake(ssl::stream_base::client, error);
    std::printf("vigil-tls says %s\n", error.message().c_str());
  });
}
