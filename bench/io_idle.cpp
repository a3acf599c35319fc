// A server whose clients say nothing.
#include "io.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <sys/resource.h>

namespace bench {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;
using vigil::io::use_fiber;

struct connection {
  explicit connection(tcp::socket s) : socket(std::move(s)) {}

  void serve(std::atomic<std::size_t>& heard) {
    for (;;) {
      char byte = 0;
      const auto [error, n] =
          socket.async_read_some(asio::buffer(&byte, 1), asio::as_tuple(use_fiber.within(2min)));
      if (error) return;
      idle.touch();
      heard.fetch_add(n);
    }
  }

  tcp::socket socket;
  vigil::timeout_list::entry idle;
};

}  // namespace

std::size_t allowed_descriptors(std::size_t wanted) noexcept {
  constexpr rlim_t others = 100;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < wanted + others) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted + others);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return std::min<std::size_t>(wanted, limit.rlim_cur - others);
}

void idle_server(std::size_t connections, std::chrono::seconds look, void (*mark)()) {
  connections = allowed_descriptors(2 * connections) / 2;
  std::atomic<std::size_t> heard{0};
  vigil::options settings;
  settings.workers = 2;
  vigil::runtime rt(settings);
  std::thread server([&] {
    rt.run([&] {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      vigil::timeout_list idle(2min, [](vigil::timeout_list::entry&) {});  // not in this time
      std::vector<tcp::socket> clients;
      for (std::size_t i = 0; i < connections; ++i) {
        auto client = vigil::spawn([&] {
          tcp::socket s(vigil::io::io_context());
          s.async_connect(acceptor.local_endpoint(), use_fiber);
          s.async_write_some(asio::buffer("x", 1), use_fiber);
          return s;
        });
        auto made = std::make_unique<connection>(acceptor.async_accept(use_fiber));
        idle.add(made->idle);
        vigil::go([c = std::move(made), &heard] { c->serve(heard); });
        clients.push_back(client.join());
      }
      vigil::sleep_for(std::chrono::hours(24));
    });
  });
  while (heard.load() < connections)
    std::this_thread::sleep_for(10ms);
  // The thread of options::stuck_limit ends up to a second after the last work.
  std::this_thread::sleep_for(2s);
  mark();
  std::this_thread::sleep_for(look);
  mark();
  rt.request_stop();
  server.join();
}

}  // namespace bench
