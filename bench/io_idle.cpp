// A server whose clients say nothing.
#include "io.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/io/serve_each.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

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

// --- idle keep-alive connections

// One address has ports for so many clients of one server.
constexpr std::size_t clients_per_address = 20'000;

// A client of the kernel's alone, which takes no memory of the process.
int raw_client(std::size_t number, unsigned short port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr =
      htonl(INADDR_LOOPBACK + static_cast<in_addr_t>(number / clients_per_address));
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  if (s < 0 || ::connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) std::abort();
  return s;
}

void ask(int client) {
  char byte = 'x';
  if (::write(client, &byte, 1) != 1 || ::read(client, &byte, 1) != 1) std::abort();
}

struct nothing {};

template <class Connection>
vigil::io::afterwards answer_byte(Connection& peer, const vigil::context&) {
  using vigil::io::afterwards;
  if (peer.is_idle()) return afterwards::keep;
  char byte = 0;
  boost::system::error_code error;
  const std::size_t n = peer.stream().read_some(asio::buffer(&byte, 1), error);
  if (n == 0) return afterwards::close;
  peer.stream().write_some(asio::buffer(&byte, 1), error);
  return error ? afterwards::close : afterwards::keep;
}

// The same with a fiber for each connection.
void answer_bytes(tcp::socket socket) {
  vigil::io::deadline_stream<tcp::socket> peer(std::move(socket));
  char byte = 0;
  boost::system::error_code error;
  while (peer.read_some(asio::buffer(&byte, 1), error) != 0 && !error)
    peer.write_some(asio::buffer(&byte, 1), error);
}

struct kept_figures {
  double bytes = 0;  // for each idle connection
  double first = 0;  // nanoseconds, the median of requests that come after the rest
};

kept_figures kept_by(bool with_fiber, std::size_t connections, std::chrono::milliseconds rest) {
  kept_figures seen;
  vigil::run(with_workers(1), [&] {
    const auto stopping = vigil::with_cancel(vigil::background());
    tcp::acceptor acceptor(vigil::io::io_context(), {tcp::v4(), 0});
    const unsigned short port = acceptor.local_endpoint().port();
    const vigil::io::serve_limits limits{.connections = connections, .grace = 0s, .idle = 1h};
    auto server = vigil::spawn([&] {
      if (with_fiber) {
        vigil::io::serve(stopping.ctx, acceptor, &answer_bytes, limits);
      } else {
        vigil::io::serve_each<nothing>(
            stopping.ctx,
            acceptor,
            [](auto& peer, const vigil::context& ctx) { return answer_byte(peer, ctx); },
            limits);
      }
    });
    vigil::blocking([&] {
      std::vector<int> clients;
      clients.reserve(connections);
      std::size_t before = 0;
      for (std::size_t i = 0; i < connections; ++i) {
        // Caches and buffers are there from now on.
        if (i == connections / 100) before = memory_held();
        clients.push_back(raw_client(i, port));
        ask(clients.back());
      }
      std::this_thread::sleep_for(rest);
      seen.bytes = (static_cast<double>(memory_held()) - static_cast<double>(before)) /
                   static_cast<double>(connections - connections / 100);
      std::vector<nanos> took;
      for (std::size_t i = 0; i < 1000; ++i) {
        const nanos begun = now();
        ask(clients[i * (connections / 1000)]);
        took.push_back(now() - begun);
      }
      seen.first = quantile(took, 0.5);
      for (const int s : clients)
        ::close(s);
    });
    stopping.cancel();
    server.join();
  });
  return seen;
}

}  // namespace

void io_kept(report& out) {
  const std::size_t n = allowed_descriptors(out.is_asked_for() ? 200'000 : 20'000) / 2;
  const std::string each = std::to_string(n) + " of them";
  const std::chrono::milliseconds rest = out.is_long() ? 10min : 100ms;
  const kept_figures without = kept_by(false, n, rest);
  const kept_figures with = kept_by(true, n, rest);
  out.add("memory of an idle connection of serve_each", without.bytes, "bytes", each);
  out.add("memory of an idle connection of serve, with its fiber", with.bytes, "bytes", each);
  const std::string after = out.is_long() ? "after ten minutes, " : "";
  out.add("the next request, " + after + "serve_each", without.first / 1e3, "us");
  out.add("the next request, " + after + "serve", with.first / 1e3, "us");
}

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
