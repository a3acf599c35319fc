// The code of docs/guide/tls.md.
//
// Run:    build/release/examples/io/guide_tls
// Prints: the talk of client and server; the errors of a client that asks for another
//         name, of one that asks for none, of one to which the server says nothing, and
//         of a server that wants its client's certificate. The deadlines are the program's
//         own, as the guide shows them; no test measures them.
#include "certificate.hpp"

#include <cstdio>
#include <string>

//! [names]
#include <vigil/io.hpp>
#include <vigil/io/tls.hpp>
#include <vigil/vigil.hpp>

#include <boost/asio.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using vigil::io::use_fiber;
using stream = vigil::io::tls_stream<tcp::socket>;

//! [names]

namespace {

void talk(asio::ssl::context& secret, const std::string& own_authority) {
  auto& context = vigil::io::io_context();
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  const auto where = acceptor.local_endpoint();
  //! [server]
  auto server = vigil::spawn([&] {
    stream peer(secret, acceptor.async_accept(use_fiber));
    peer.set_deadline(vigil::clock::now() + 10s);  // for the handshake and all the rest
    peer.handshake(asio::ssl::stream_base::server);
    std::string line;
    asio::read_until(peer, asio::dynamic_buffer(line), '\n');
    asio::write(peer, asio::buffer("you said " + line));
    peer.shutdown();  // otherwise the client could not know that this was all
    boost::system::error_code end;
    asio::read(peer, asio::dynamic_buffer(line), end);  // to the client's shutdown
  });
  //! [server]

  //! [trusted]
  asio::ssl::context trusted = vigil::io::tls_client_context();  // once, for all connections
  //! [trusted]
  //! [added]
  trusted.add_certificate_authority(asio::buffer(own_authority));  // PEM
  //! [added]
  //! [client]
  tcp::socket socket(context);
  socket.async_connect(where, use_fiber);
  stream peer(trusted, std::move(socket));
  peer.set_host("localhost");  // the name that the certificate must have
  peer.set_deadline(vigil::clock::now() + 10s);
  peer.handshake(asio::ssl::stream_base::client);
  asio::write(peer, asio::buffer("hello\n", 6));
  std::string answer;
  boost::system::error_code end;
  asio::read(peer, asio::dynamic_buffer(answer), end);
  std::printf("%s%s\n", answer.c_str(), end == asio::error::eof ? "all of it" : "cut off");
  peer.shutdown();
  //! [client]
  server.join();
}

// Calls `as_client` with a connected socket.
template <class F>
void ask(asio::ssl::context& secret, F as_client) {
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  const auto where = acceptor.local_endpoint();
  auto server = vigil::spawn([&] {
    stream peer(secret, acceptor.async_accept(use_fiber));
    boost::system::error_code error;
    peer.handshake(asio::ssl::stream_base::server, error);
    return !error;
  });
  tcp::socket socket(vigil::io::io_context());
  socket.async_connect(where, use_fiber);
  as_client(std::move(socket));
  std::printf("server: the client is %s\n", server.join() ? "content" : "not content");
}

void ask_for_another(asio::ssl::context& secret, asio::ssl::context& trusted) {
  ask(secret, [&](tcp::socket socket) {
    stream peer(trusted, std::move(socket));
    peer.set_host("example.org");
    boost::system::error_code error;
    peer.handshake(asio::ssl::stream_base::client, error);
    std::printf("client: %s\n", error ? "this is not example.org" : "?");
  });
}

void ask_for_none(asio::ssl::context& trusted) {
  auto [near, far] = vigil::io::memory_pipe();
  vigil::io::tls_stream<vigil::io::memory_stream> peer(trusted, std::move(near));
  //! [tls_error]
  boost::system::error_code error;
  peer.handshake(asio::ssl::stream_base::client, error);  // without set_host()
  if (error == vigil::io::make_error_code(vigil::io::tls_error::no_host_name)) {
    std::puts("client: no name to verify");
  } else if (error.category() == vigil::io::tls_category()) {
    std::puts("client: no certificate to verify");
  }
  //! [tls_error]
}

void ask_for_anybody(asio::ssl::context& secret, asio::ssl::context& trusted) {
  ask(secret, [&](tcp::socket socket) {
    //! [skip]
    stream peer(trusted, std::move(socket));
    peer.skip_verification();  // anybody may be at the other end, and read everything
    peer.handshake(asio::ssl::stream_base::client);
    //! [skip]
    peer.shutdown();
  });
}

void ask_a_silent_server(asio::ssl::context& secret, asio::ssl::context& trusted) {
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  const auto where = acceptor.local_endpoint();
  auto server = vigil::spawn([&] {
    stream peer(secret, acceptor.async_accept(use_fiber));
    peer.handshake(asio::ssl::stream_base::server);
    char byte = 0;
    boost::system::error_code end;
    peer.read_some(asio::buffer(&byte, 1), end);  // to the client's shutdown
  });
  tcp::socket socket(vigil::io::io_context());
  socket.async_connect(where, use_fiber);
  stream peer(trusted, std::move(socket));
  peer.set_host("localhost");
  peer.handshake(asio::ssl::stream_base::client);
  //! [late]
  peer.set_read_deadline(vigil::clock::now() + 20ms);  // for reads alone
  std::string line;
  boost::system::error_code error;
  asio::read_until(peer, asio::dynamic_buffer(line), '\n', error);
  if (error == asio::error::timed_out) std::puts("no line within 20 ms");
  //! [late]
  peer.shutdown();
  server.join();
}

void ask_the_client(asio::ssl::context& secret, asio::ssl::context& trusted) {
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  const auto where = acceptor.local_endpoint();
  auto client = vigil::spawn([&] {
    tcp::socket socket(vigil::io::io_context());
    socket.async_connect(where, use_fiber);
    stream peer(trusted, std::move(socket));
    peer.set_host("localhost");
    boost::system::error_code ignored;
    peer.handshake(asio::ssl::stream_base::client, ignored);
    char byte = 0;
    peer.read_some(asio::buffer(&byte, 1), ignored);
  });
  //! [require]
  stream peer(secret, acceptor.async_accept(use_fiber));
  peer.require_certificate();  // the client's
  boost::system::error_code error;
  peer.handshake(asio::ssl::stream_base::server, error);
  //! [require]
  std::printf("server: %s\n", error ? "the client has none" : "?");
  client.join();
}

}  // namespace

int main() {
  return vigil::run([] {
    const example::certificate known = example::make_certificate();
    example::tls_contexts contexts(known);
    talk(contexts.server, known.text);
    ask_for_another(contexts.server, contexts.client);
    ask_for_none(contexts.client);
    ask_for_anybody(contexts.server, contexts.client);
    ask_a_silent_server(contexts.server, contexts.client);
    ask_the_client(contexts.server, contexts.client);
  });
}
