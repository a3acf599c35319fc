// The code of docs/coming-from-asio.md: each function is one passage there.
//
// Run:    build/release/examples/io/guide_asio
// Prints: what each passage does.
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <csignal>
#include <cstdio>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using vigil::io::use_fiber;
using unix_socket = asio::local::stream_protocol::socket;

namespace {

//! [session]
void serve_one(tcp::socket& peer) {
  std::string text;
  for (;;) {
    const std::size_t n =
        asio::async_read_until(peer, asio::dynamic_buffer(text), '\n', use_fiber.within(30s));
    asio::async_write(peer, asio::buffer(text, n), use_fiber.within(10s));
    text.erase(0, n);
  }
}

//! [session]

//! [compose]
std::string ask(tcp::socket& server, std::string_view question, vigil::clock::time_point until) {
  const auto in_time = use_fiber.until(until);  // for both steps together
  asio::async_write(server, asio::buffer(question), in_time);
  std::string answer;
  asio::async_read_until(server, asio::dynamic_buffer(answer), '\n', in_time);
  return answer;
}

//! [compose]

bool is_refused(const tcp::endpoint& where) {
  tcp::socket s(vigil::io::io_context());
  return std::get<0>(s.async_connect(where, asio::as_tuple(use_fiber))) ==
         asio::error::connection_refused;
}

// A client that is in the middle of a request when the signal comes.
void talk(const tcp::endpoint& server) {
  const auto soon = vigil::clock::now() + 10s;
  tcp::socket client(vigil::io::io_context());
  client.async_connect(server, use_fiber);
  std::printf("%s", ask(client, "one\n", soon).c_str());
  asio::async_write(client, asio::buffer("tw", 2), use_fiber);
  std::raise(SIGTERM);
  while (!is_refused(server))
    vigil::this_fiber::yield();
  std::printf("%s", ask(client, "o, to its end\n", soon).c_str());
}

void graceful_stop() {
  auto& context = vigil::io::io_context();
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  vigil::fiber<> client;
  //! [signals]
  asio::signal_set signals(context, SIGINT, SIGTERM);
  auto [stopping, stop] = vigil::with_cancel(vigil::background());
  auto server = vigil::spawn([&, stopping = stopping] {
    vigil::group sessions;
    try {
      for (;;) {
        tcp::socket peer = acceptor.async_accept(use_fiber.under(stopping));
        sessions.go([peer = std::move(peer)]() mutable {
          try {
            serve_one(peer);
          } catch (const boost::system::system_error&) {
            // The peer has gone, or was too slow.
          }
        });
      }
    } catch (const vigil::cancelled&) {
      acceptor.close();
    }
    sessions.wait();  // requests that have begun are finished
  });
  //! [signals]
  client = vigil::spawn([to = acceptor.local_endpoint()] { talk(to); });
  //! [stop]
  const int which = signals.async_wait(use_fiber);
  std::printf("signal %d: no more clients\n", which);
  stop();
  server.join();
  //! [stop]
  client.join();
}

//! [line]
struct connection {
  unix_socket socket;
  std::string text;  // read, and not yet used
};

std::string read_line(connection& from) {
  const std::size_t n =
      asio::async_read_until(from.socket, asio::dynamic_buffer(from.text), '\n', use_fiber);
  std::string line = from.text.substr(0, n);
  from.text.erase(0, n);
  return line;
}

//! [line]

struct pair {
  explicit pair(asio::io_context& context) : near{unix_socket(context), {}}, far(context) {
    asio::local::connect_pair(near.socket, far);
  }

  connection near;
  unix_socket far;
};

void first_of_two(connection& left, connection& right) {
  //! [first]
  auto lines = vigil::make_channel<std::string>(2);
  vigil::group both;
  for (connection* const from : {&left, &right})
    both.go([&lines, from] { lines.send(read_line(*from)); });

  std::printf("%s", lines.recv()->c_str());
  both.cancel();  // asks the other to stop ...
  both.wait();    // ... and here it has
  //! [first]
}

void in_turn(unix_socket& socket) {
  //! [strand]
  vigil::mutex turn;
  const auto say = [&](std::string_view text) {
    const std::lock_guard mine(turn);
    asio::async_write(socket, asio::buffer(text), use_fiber);  // waits, and keeps its turn
  };
  //! [strand]
  auto other = vigil::spawn([&] { say("in one piece\n"); });
  say("in one piece\n");
  other.join();
}

void one_signal_for_all(unix_socket& left, unix_socket& right) {
  //! [cancel]
  auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  vigil::group readers(ctx);
  for (unix_socket* const from : {&left, &right}) {
    readers.go([from](const vigil::context& until) {
      char byte = 0;
      from->async_read_some(asio::buffer(&byte, 1), use_fiber.under(until));
    });
  }
  cancel();  // from any fiber or thread, at any time
  try {
    readers.wait();
  } catch (const vigil::cancelled&) {
    std::puts("both reads have ended");
  }
  //! [cancel]
}

void moving_deadline(tcp::socket socket) {
  //! [expires_after]
  vigil::io::deadline_stream<tcp::socket> stream(std::move(socket));
  stream.set_deadline(vigil::clock::now() + 30s);  // stream.expires_after(30s)
  asio::write(stream, asio::buffer("hello\n", 6));
  //! [expires_after]
}

void future(unix_socket& socket) {
  char byte = 0;
  //! [future]
  std::future<std::size_t> later =
      asio::async_read(socket, asio::buffer(&byte, 1), asio::use_future);
  const std::size_t n = vigil::blocking([&] { return later.get(); });
  //! [future]
  std::printf("%zu byte: %c\n", n, byte);
}

#ifdef BOOST_ASIO_HAS_CO_AWAIT
//! [coroutine]
asio::awaitable<int> written_for_asio(std::chrono::milliseconds pause) {
  asio::steady_timer t(co_await asio::this_coro::executor, pause);
  co_await t.async_wait(asio::use_awaitable);
  co_return 42;
}

void waits_for_a_coroutine() {
  const int n = asio::co_spawn(vigil::io::io_context(), written_for_asio(1ms), use_fiber);
  std::printf("the coroutine says %d\n", n);
}

//! [coroutine]
#else
void waits_for_a_coroutine() {
  std::puts("the coroutine says 42");  // this compiler has no coroutines for Asio
}
#endif

void two_and_a_coroutine() {
  auto& context = vigil::io::io_context();
  pair a(context);
  pair b(context);
  asio::async_write(a.far, asio::buffer("left\n", 5), use_fiber);
  first_of_two(a.near, b.near);
  in_turn(a.near.socket);
  one_signal_for_all(a.near.socket, b.near.socket);
  asio::async_write(b.far, asio::buffer("x", 1), use_fiber);
  future(b.near.socket);
  waits_for_a_coroutine();

  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  tcp::socket client(context);
  client.async_connect(acceptor.local_endpoint(), use_fiber);
  moving_deadline(std::move(client));
  std::string line;
  tcp::socket peer = acceptor.async_accept(use_fiber);
  asio::async_read_until(peer, asio::dynamic_buffer(line), '\n', use_fiber);
  std::printf("%s", line.c_str());
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  return vigil::run([] {
    graceful_stop();
    two_and_a_coroutine();
  });
}
