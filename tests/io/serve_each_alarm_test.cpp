// io::serve_each calls a handler for bytes only when they are there.
#include "io/io_test.hpp"

#include <vigil/io/serve_each.hpp>

#include <atomic>
#include <cstdlib>

#include <boost/asio/ip/tcp.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace vigil::io_testing;
using vigil::io::afterwards;

namespace {

struct nothing {};

constexpr std::size_t half = 5;

int alarm_client(unsigned short port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  if (::connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    std::abort();
  }
  return s;
}

void put_half(int client) {
  if (::send(client, "01234", half, 0) != half) std::abort();
}

// Sends requests in two packets, so that Asio has events for bytes that are read without
// a wait for them.
void ask_in_halves(unsigned short port, int rounds) {
  std::vector<int> clients(100);
  for (int& c : clients)
    c = alarm_client(port);
  for (int round = 0; round < rounds; ++round) {
    for (const int c : clients) {
      put_half(c);
      if (round % 3 == 0) put_half(c);
    }
    for (const int c : clients) {
      if (round % 3 != 0) put_half(c);
    }
    char answer[2 * half];
    for (const int c : clients) {
      if (::recv(c, answer, sizeof answer, MSG_WAITALL) != sizeof answer) std::abort();
    }
  }
  for (const int c : clients)
    ::close(c);
}

}  // namespace

TEST_SUITE("serve_each") {
  // One call in a hundred had nothing to read.
  TEST_CASE("a handler that is called for bytes finds some") {
    for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
      std::atomic<int> calls{0};
      std::atomic<int> in_vain{0};
      vigil::options o;
      o.workers = workers;
      vigil::run(o, [&] {
        asio::ip::tcp::acceptor acceptor(vigil::io::io_context(),
                                         {asio::ip::address_v4::loopback(), 0});
        const unsigned short port = acceptor.local_endpoint().port();
        const auto stopping = vigil::with_cancel(vigil::background());
        auto server = vigil::spawn([&] {
          vigil::io::serve_each<nothing>(
              stopping.ctx,
              acceptor,
              [&](auto& peer, const vigil::context&) {
                char bytes[2 * half];
                const int socket = peer.stream().next_layer().native_handle();
                ++calls;
                if (::recv(socket, bytes, 1, MSG_PEEK | MSG_DONTWAIT) < 0) ++in_vain;
                error_code error;
                asio::read(peer.stream(), asio::buffer(bytes), error);
                if (!error) asio::write(peer.stream(), asio::buffer(bytes), error);
                return error ? afterwards::close : afterwards::keep;
              },
              {.grace = std::chrono::nanoseconds(0)});
        });
        vigil::blocking([&] { ask_in_halves(port, 300); });
        stopping.cancel();
        server.join();
      });
      CHECK(calls >= 30'000);
      CHECK(in_vain == 0);
    }
  }
}
