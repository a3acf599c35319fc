// A program that is built with the standard library's debug mode, where containers have
// another layout, works with a vigil-io and an Asio inside it that are not: every type of
// theirs that holds a container, and everything that passes from one to the other.
#ifndef _GLIBCXX_DEBUG
#error "built without -D_GLIBCXX_DEBUG"
#endif

#include <vigil/io.hpp>
#include <vigil/vigil.hpp>
#ifdef WITH_TLS
#include <vigil/io/tls.hpp>
#endif

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/deadline_timer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace io = vigil::io;
using asio::ip::tcp;
using io::use_fiber;

namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

// This program must not use Asio's resolver: its functions, compiled for debug mode,
// would be mistaken for those that the library must not have.
void resolve() {
  const io::addresses found = io::resolve("127.0.0.1", "80");
  check(found.size() == 1, "one address");
  check(found.begin()->endpoint() == tcp::endpoint(asio::ip::address_v4::loopback(), 80),
        "the address");
  check(found.begin()->host_name() == "127.0.0.1", "its host");
  check(found.begin()->service_name() == "80", "its service");
}

void time() {
  asio::steady_timer first(io::io_context(), 2ms);
  asio::steady_timer second(io::io_context(), 1ms);
  auto waits = vigil::spawn([&] { second.async_wait(use_fiber); });
  first.async_wait(use_fiber);
  waits.join();
  asio::deadline_timer by_date(io::io_context(), boost::posix_time::milliseconds(1));
  by_date.async_wait(use_fiber);
  boost::system::error_code error;
  first.expires_after(1h);
  first.async_wait(asio::redirect_error(use_fiber.within(1ms), error));
  check(error == asio::error::timed_out, "a deadline");
}

void serve() {
  tcp::acceptor acceptor(io::io_context(), {asio::ip::address_v4::loopback(), 0});
  const auto port = std::to_string(acceptor.local_endpoint().port());
  auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  auto server = vigil::spawn([&, ctx = ctx] {
    io::serve(ctx, acceptor, [](tcp::socket s) {
      io::deadline_stream<tcp::socket> stream(std::move(s));
      stream.set_deadline(vigil::clock::now() + 1h);
      std::string line;
      asio::read_until(stream, asio::dynamic_buffer(line), '\n');
      asio::write(stream, asio::buffer(line));
    });
  });
  tcp::socket client(io::io_context());
  asio::async_connect(client, io::resolve("127.0.0.1", port), use_fiber);
  asio::async_write(client, asio::buffer(std::string("hello\n")), use_fiber);
  asio::streambuf got;
  asio::async_read_until(client, got, '\n', use_fiber);
  check(got.size() == 6, "an echo");
  cancel();
  server.join();
}

void memory() {
  auto [here, there] = io::memory_pipe();
  asio::async_write(here, asio::buffer(std::string("hello")), use_fiber);
  std::vector<char> got(5);
  asio::async_read(there, asio::buffer(got), use_fiber);
  check(std::string(got.begin(), got.end()) == "hello", "a stream in memory");
}

void tls() {
#ifdef WITH_TLS
  auto context = io::tls_client_context();
  auto [here, there] = io::memory_pipe();
  io::tls_stream<io::memory_stream> stream(context, std::move(here));
  boost::system::error_code error;
  stream.handshake(asio::ssl::stream_base::client, error);
  check(error == io::tls_error::no_host_name, "a refused handshake");
#endif
}

}  // namespace

int main() {
  vigil::run({.workers = 2}, [] {
    resolve();
    time();
    serve();
    memory();
    tls();
    asio::signal_set signals(io::io_context(), SIGUSR1);
    auto strand = asio::make_strand(io::executor());
    asio::post(strand, use_fiber);
  });
}
