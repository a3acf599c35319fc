// The code about I/O of docs/guide/coroutines.md: each function is one passage there.
//
// Run:    build/release/examples/io/guide_io_tasks
// Prints: what each passage does.
#include <vigil/io.hpp>
#include <vigil/io/co.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace asio = boost::asio;
namespace co = vigil::co;
namespace io = vigil::io;
using asio::ip::tcp;
using namespace std::chrono_literals;

namespace {

//! [echo]
vigil::task<> echo(io::deadline_stream<tcp::socket> s) {
  std::array<char, 1024> room;
  s.set_read_deadline(vigil::clock::now() + 30s);
  const std::size_t n = co_await io::co::read_some(s, asio::buffer(room));
  co_await io::co::write(s, asio::buffer(room.data(), n));
}

//! [echo]

//! [operation]
vigil::task<std::string> ask(tcp::endpoint server) {
  tcp::socket raw(io::io_context());
  {
    io::pending<void> connects([&](auto token) { return raw.async_connect(server, token); });
    co_await io::co::result(connects);
  }
  io::deadline_stream<tcp::socket> s(std::move(raw));
  co_await io::co::write(s, asio::buffer("hello", 5));
  std::string answer(5, ' ');
  const std::size_t n = co_await io::co::read_some(s, asio::buffer(answer));
  answer.resize(n);
  co_return answer;
}

//! [operation]

void serve_one() {
  tcp::acceptor accepts(io::io_context(), {asio::ip::address_v4::loopback(), 0});
  auto client = vigil::spawn(ask(accepts.local_endpoint()));
  auto server =
      vigil::spawn(echo(io::deadline_stream<tcp::socket>(accepts.async_accept(io::use_fiber))));
  std::puts(client.join().c_str());
  server.join();
}

//! [asio]
asio::awaitable<int> of_asio() {
  asio::steady_timer t(co_await asio::this_coro::executor, 1ms);
  co_await t.async_wait(asio::use_awaitable);
  co_return 1;
}

vigil::task<int> of_vigil() {
  const auto executor = io::io_context().get_executor();
  co_return 1 + co_await io::co::spawned(executor, of_asio());
}

asio::awaitable<int> of_both() {
  co_return 1 + co_await io::async_run(of_vigil(), asio::use_awaitable);
}

//! [asio]

void both_ways() {
  std::printf("%d\n",
              vigil::spawn(io::co::spawned(io::io_context().get_executor(), of_both())).join());
}

}  // namespace

int main() {
  vigil::run([] {
    serve_one();
    both_ways();
  });
}
