// The HTTP peer on Boost.Beast and Asio's coroutines, in their authors' style: a
// coroutine for each connection, and beside it one with a steady_timer that watches its
// deadline (the cheapest way there is: a request only moves the deadline). Prints its
// port.
//
//   http_beast [THREADS]     more than one: each connection has a strand
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using time_point = std::chrono::steady_clock::time_point;

namespace {

constexpr auto idle = std::chrono::seconds(120);

const std::string& date() {
  thread_local std::time_t second = -1;
  thread_local std::string text;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec != second) {
    std::tm t{};
    gmtime_r(&now.tv_sec, &t);
    char line[64];
    text.assign(line, std::strftime(line, sizeof line, "%a, %d %b %Y %H:%M:%S GMT", &t));
    second = now.tv_sec;
  }
  return text;
}

asio::awaitable<void> watch(const time_point& deadline) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (deadline > std::chrono::steady_clock::now()) {
    timer.expires_at(deadline);
    co_await timer.async_wait(use_awaitable);
  }
}

asio::awaitable<void> talk(tcp::socket& peer, time_point& deadline) {
  boost::beast::flat_buffer buffer;
  for (;;) {
    deadline = std::chrono::steady_clock::now() + idle;
    http::request<http::string_body> in;
    co_await http::async_read(peer, buffer, in, use_awaitable);
    http::response<http::string_body> out(http::status::ok, in.version());
    out.set(http::field::date, date());
    out.set(http::field::content_type, "text/plain; charset=utf-8");
    out.keep_alive(in.keep_alive());
    if (in.target() == "/hello") {
      out.body() = "hello, world\n";
    } else {
      out.result(http::status::not_found);
    }
    out.prepare_payload();
    co_await http::async_write(peer, out, use_awaitable);
    if (!out.keep_alive()) co_return;
  }
}

asio::awaitable<void> serve(tcp::socket peer) {
  using namespace asio::experimental::awaitable_operators;
  try {
    peer.set_option(tcp::no_delay(true));
    time_point deadline = std::chrono::steady_clock::now() + idle;
    co_await (talk(peer, deadline) || watch(deadline));
  } catch (const std::exception&) {
    // The peer has gone.
  }
}

asio::awaitable<void> listen(tcp::acceptor& acceptor, bool is_alone) {
  for (;;) {
    asio::any_io_executor where = acceptor.get_executor();
    if (!is_alone) where = asio::make_strand(where);
    tcp::socket peer = co_await acceptor.async_accept(where, use_awaitable);
    asio::co_spawn(where, serve(std::move(peer)), asio::detached);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  asio::io_context context(threads);
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  std::printf("port %u\n", static_cast<unsigned>(acceptor.local_endpoint().port()));
  std::fflush(stdout);
  asio::co_spawn(context, listen(acceptor, threads == 1), asio::detached);
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i)
    others.emplace_back([&] { context.run(); });
  context.run();
}
