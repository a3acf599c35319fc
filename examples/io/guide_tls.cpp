// The code of the TLS passage of docs/guide/io.md.
//
// Run:    build/release/examples/io/guide_tls
// Prints: what client and server say to each other, and what a client finds who
//         asks for somebody else. The ten seconds are the program's own deadline, as the
//         guide shows it; no test measures them.
#include "certificate.hpp"

#include <vigil/io/context.hpp>
#include <vigil/io/tls.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using vigil::io::use_fiber;

namespace {

void talk(asio::ssl::context& secret, asio::ssl::context& trusted) {
  auto& context = vigil::io::context();
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  //! [tls]
  using stream = vigil::io::tls_stream<tcp::socket>;
  auto server = vigil::spawn([&] {
    stream peer(secret, acceptor.async_accept(use_fiber));
    peer.set_deadline(vigil::clock::now() + 10s);  // for the handshake and all the rest
    peer.handshake(asio::ssl::stream_base::server);
    std::string line;
    asio::read_until(peer, asio::dynamic_buffer(line), '\n');
    asio::write(peer, asio::buffer("you said " + line));
    peer.shutdown();  // without it the client could not know that this was all
    boost::system::error_code end;
    asio::read(peer, asio::dynamic_buffer(line), end);  // to the client's shutdown
  });

  tcp::socket socket(context);
  socket.async_connect(acceptor.local_endpoint(), use_fiber);
  stream peer(trusted, std::move(socket));
  peer.set_host("localhost");  // whom the certificate must name
  peer.set_deadline(vigil::clock::now() + 10s);
  peer.handshake(asio::ssl::stream_base::client);
  asio::write(peer, asio::buffer("hello\n", 6));
  std::string answer;
  boost::system::error_code end;
  asio::read(peer, asio::dynamic_buffer(answer), end);
  std::printf("%s%s\n", answer.c_str(), end == asio::error::eof ? "all of it" : "cut off");
  peer.shutdown();
  //! [tls]
  server.join();
}

void ask_for_another(asio::ssl::context& secret, asio::ssl::context& trusted) {
  auto& context = vigil::io::context();
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  auto server = vigil::spawn([&] {
    vigil::io::tls_stream<tcp::socket> peer(secret, acceptor.async_accept(use_fiber));
    boost::system::error_code error;
    peer.handshake(asio::ssl::stream_base::server, error);
    std::printf("server: %s\n", error ? "the client is not content" : "?");
  });
  tcp::socket socket(context);
  socket.async_connect(acceptor.local_endpoint(), use_fiber);
  vigil::io::tls_stream<tcp::socket> peer(trusted, std::move(socket));
  peer.set_host("example.org");
  boost::system::error_code error;
  peer.handshake(asio::ssl::stream_base::client, error);
  server.join();
  std::printf("client: %s\n", error ? "this is not example.org" : "?");
}

}  // namespace

int main() {
  return vigil::run([] {
    example::tls_contexts contexts;
    talk(contexts.server, contexts.client);
    ask_for_another(contexts.server, contexts.client);
  });
}
