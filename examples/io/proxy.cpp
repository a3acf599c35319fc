// proxy: passes each connection on to another server, in both directions.
//
// Run:     build/release/examples/io/proxy PORT HOST PORT, then Ctrl-C
// Prints:  without arguments, the course of three connections: one that half-closes, over
//          TCP; one that drips and one that is silent, in memory, on virtual time.
//
// The end of one direction is passed on as the end of that direction (half-close), so
// "send all, then read the answer" works through it. A connection on which nothing
// happens in either direction for half a minute is ended.
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/resolve.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <signal.h>

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;
using boost::system::error_code;
using vigil::io::deadline_stream;
using vigil::io::use_fiber;

namespace {

constexpr auto idle_time = 30s;

// Copies one direction to its end. An end is passed on; an error ends both directions.
//! [copy]
template <class Stream>
void copy(Stream& from, Stream& to) {
  std::array<char, 16 * 1024> bytes;
  error_code error;
  while (!error) {
    const std::size_t n = from.read_some(asio::buffer(bytes), error);
    if (!error) asio::write(to, asio::buffer(bytes.data(), n), error);
  }
  if (error == asio::error::eof) {
    to.close_write(error);
    if (!error) return;
  }
  from.close();
  to.close();
}

//! [copy]

// connect() returns a connection to the server.
template <class Acceptor, class Connect>
void run_proxy(Acceptor& acceptor, Connect connect) {
  vigil::io::idle_list idle(idle_time);
  vigil::io::serve(acceptor, [&](auto socket) {
    using stream = deadline_stream<decltype(socket)>;
    stream client(std::move(socket));
    stream server(connect());
    client.set_idle_list(idle);
    server.set_idle_list(idle);
    //! [both]
    auto there = vigil::spawn([&] { copy(client, server); });
    copy(server, client);
    there.join();
    //! [both]
  });
}

void run_proxy(tcp::acceptor& acceptor, const std::string& host, const std::string& port) {
  run_proxy(acceptor, [&] {
    const auto addresses = vigil::io::resolve(host, port, use_fiber.within(1min));
    tcp::socket server(vigil::io::io_context());
    asio::async_connect(server, addresses, use_fiber.within(1min));
    return server;
  });
}

// --- the demonstration

// Answers once the client has sent all.
template <class Socket>
void count_bytes(Socket socket) {
  deadline_stream<Socket> peer(std::move(socket));
  std::size_t all = 0;
  std::array<char, 1024> bytes;
  error_code error;
  while (!error)
    all += peer.read_some(asio::buffer(bytes), error);
  asio::write(peer, asio::buffer(std::to_string(all) + " bytes"), error);
}

void over_tcp() {
  const tcp::endpoint any(asio::ip::address_v4::loopback(), 0);
  tcp::acceptor counter(vigil::io::io_context(), any);
  tcp::acceptor proxy(vigil::io::io_context(), any);
  const std::string port = std::to_string(counter.local_endpoint().port());
  const tcp::endpoint where = proxy.local_endpoint();
  const auto counts = vigil::spawn([&] { vigil::io::serve(counter, count_bytes<tcp::socket>); });
  const auto proxies = vigil::spawn([&] { run_proxy(proxy, "127.0.0.1", port); });

  tcp::socket socket(vigil::io::io_context());
  socket.async_connect(where, use_fiber);
  asio::async_write(socket, asio::buffer(std::string(1'000'000, 'x')), use_fiber);
  socket.shutdown(tcp::socket::shutdown_send);
  std::string answer;
  error_code error;
  asio::async_read(socket, asio::dynamic_buffer(answer), asio::redirect_error(use_fiber, error));
  std::printf("half-closed: the server has had %s\n", answer.c_str());
}

void on_virtual_time() {
  vigil::io::memory_acceptor counter;
  vigil::io::memory_acceptor proxy;
  const auto counts =
      vigil::spawn([&] { vigil::io::serve(counter, count_bytes<vigil::io::memory_stream>); });
  const auto proxies = vigil::spawn([&] { run_proxy(proxy, [&] { return counter.connect(); }); });

  const auto start = vigil::clock::now();
  const auto seconds = [&] { return static_cast<long long>((vigil::clock::now() - start) / 1s); };
  // A byte every 29 seconds keeps it alive.
  deadline_stream<vigil::io::memory_stream> drip(proxy.connect());
  for (int i = 0; i < 10; ++i) {
    vigil::sleep_for(29s);
    asio::write(drip, asio::buffer("x", 1));
  }
  error_code error;
  drip.close_write(error);
  std::string answer;
  asio::read(drip, asio::dynamic_buffer(answer), error);
  std::printf("dripping: after %lld s the server has had %s\n", seconds(), answer.c_str());

  deadline_stream<vigil::io::memory_stream> silent(proxy.connect());
  char byte = 0;
  silent.read_some(asio::buffer(&byte, 1), error);
  std::printf("silent: ended after %lld s, %s\n",
              seconds() - 290,
              error == asio::error::eof ? "by the proxy" : error.message().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    const int status = vigil::run([] { over_tcp(); });
    vigil::testing::run_virtual([] { on_virtual_time(); });
    return status;
  }
  vigil::options settings;
  settings.stop_on = {SIGINT, SIGTERM};
  return vigil::run(settings, [&] {
    const auto port = static_cast<unsigned short>(std::atoi(argv[1]));
    tcp::acceptor acceptor(vigil::io::io_context(), {tcp::v4(), port});
    std::puts("handing on; Ctrl-C ends it");
    run_proxy(acceptor, argv[2], argv[3]);
  });
}
