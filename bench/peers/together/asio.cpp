// Asio's coroutines and timers, for `./dev bench --peers together`: a byte there and
// back over TCP without a deadline, and a million callbacks within a second. One
// io_context is run by as many threads as vigil has workers.
#include "together/measure.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using together::measure;

void run(asio::io_context& context, int threads) {
  std::vector<std::thread> more;
  for (int i = 1; i < threads; ++i)
    more.emplace_back([&] {
      context.run();
      together::thread_ends();
    });
  context.run();
  for (std::thread& t : more)
    t.join();
}

template <std::size_t Room>
asio::awaitable<void> talk(tcp::socket s, std::size_t n, bool begins) {
  std::vector<char> bytes(Room);
  for (std::size_t i = 0; i < n; ++i) {
    if (begins) co_await s.async_write_some(asio::buffer(bytes.data(), 1), asio::use_awaitable);
    co_await s.async_read_some(asio::buffer(bytes), asio::use_awaitable);
    if (!begins) co_await s.async_write_some(asio::buffer(bytes.data(), 1), asio::use_awaitable);
  }
}

asio::awaitable<void> accept(tcp::acceptor& from, tcp::socket& to) {
  to = co_await from.async_accept(asio::use_awaitable);
}

asio::awaitable<void> connect(tcp::endpoint to, tcp::socket& with) {
  co_await with.async_connect(to, asio::use_awaitable);
}

template <std::size_t Room>
void talk_n(asio::io_context& context, std::size_t n, int threads) {
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  tcp::socket near(context);
  tcp::socket far(context);
  asio::co_spawn(context, accept(acceptor, far), asio::detached);
  asio::co_spawn(context, connect(acceptor.local_endpoint(), near), asio::detached);
  context.run();
  context.restart();
  near.set_option(tcp::no_delay(true));
  far.set_option(tcp::no_delay(true));
  asio::co_spawn(context, talk<Room>(std::move(far), n, false), asio::detached);
  asio::co_spawn(context, talk<Room>(std::move(near), n, true), asio::detached);
  run(context, threads);
  context.restart();
}

template <std::size_t Room>
void stream(int threads) {
  constexpr std::size_t n = 40'000;
  asio::io_context context(threads);
  talk_n<Room>(context, n / 10, threads);
  measure(n, [&] { talk_n<Room>(context, n, threads); });
}

void callbacks(int threads) {
  constexpr std::size_t n = 1'000'000;
  asio::io_context context(threads);
  std::deque<asio::steady_timer> timers;
  std::atomic<std::size_t> left{n};
  measure(n, [&] {
    asio::post(context, [&] {
      std::minstd_rand dice(1);
      std::uniform_int_distribution<together::nanos> within(0, 1'000'000'000);
      for (std::size_t i = 0; i < n; ++i) {
        auto& t = timers.emplace_back(context, std::chrono::nanoseconds(within(dice)));
        t.async_wait([&](boost::system::error_code) { left.fetch_sub(1); });
      }
    });
    run(context, threads);
  });
  if (left.load() != 0) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view work = argc == 3 ? argv[1] : "";
  const int threads = argc == 3 ? std::atoi(argv[2]) : 1;
  if (work == "stream") {
    stream<1>(threads);
  } else if (work == "stream4k") {
    stream<4096>(threads);
  } else if (work == "callbacks") {
    callbacks(threads);
  } else {
    std::fputs("usage: together_asio stream|stream4k|callbacks THREADS\n", stderr);
    return 2;
  }
  return 0;
}
