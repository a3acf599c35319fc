// The memory of an idle TLS connection of io::serve_each. Its clients are in a process of
// their own, where OpenSSL's half of each connection is as large.
//
// Run:     ninja -C build/release bench/tls_kept, then
//          build/release/bench/tls_kept [CONNECTIONS]
// Prints:  resident memory with page tables, for each connection.
#include "certificate.hpp"
#include "harness.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/io/serve_each.hpp>
#include <vigil/io/tls.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;
using secure_stream = vigil::io::tls_stream<tcp::socket>;
using vigil::io::afterwards;

void put(int pipe, unsigned short value) {
  if (::write(pipe, &value, sizeof value) != sizeof value) std::abort();
}

// Returns 0 at the end of the pipe.
unsigned short get(int pipe) {
  unsigned short value = 0;
  return ::read(pipe, &value, sizeof value) == sizeof value ? value : 0;
}

// Connects, says so after a hundredth of the connections and after all, and holds them
// until the other process closes its pipe.
void be_clients(std::size_t connections, int in, int out) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(get(in));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (std::size_t i = 1; i <= connections; ++i) {
    const int s = ::socket(AF_INET, SOCK_STREAM, 0);
    SSL* const tls = SSL_new(context);
    char byte = 'x';
    if (s < 0 || ::connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
        SSL_set_fd(tls, s) != 1 || SSL_connect(tls) != 1 || SSL_write(tls, &byte, 1) != 1 ||
        SSL_read(tls, &byte, 1) != 1) {
      std::fputs("a client has failed\n", stderr);
      std::_Exit(1);
    }
    if (i == connections / 100 || i == connections) {
      put(out, 1);
      get(in);
    }
  }
}

struct session {
  bool is_greeted = false;
};

class echo {
 public:
  explicit echo(asio::ssl::context& secret) : secret_(secret) {}

  secure_stream wrap(tcp::socket below) const { return secure_stream(secret_, std::move(below)); }

  template <class Connection>
  afterwards operator()(Connection& peer, const vigil::context&) const {
    if (peer.is_idle()) return afterwards::keep;
    boost::system::error_code error;
    if (!std::exchange(peer.state().is_greeted, true)) {
      peer.stream().handshake(asio::ssl::stream_base::server, error);
      return error ? afterwards::close : afterwards::keep;
    }
    char byte = 0;
    if (peer.stream().read_some(asio::buffer(&byte, 1), error) == 0) return afterwards::close;
    peer.stream().write_some(asio::buffer(&byte, 1), error);
    return error ? afterwards::close : afterwards::keep;
  }

 private:
  asio::ssl::context& secret_;
};

void serve(std::size_t connections, int in, int out) {
  const example::certificate own = example::make_certificate();
  asio::ssl::context secret(asio::ssl::context::tls_server);
  secret.use_certificate_chain(asio::buffer(own.text));
  secret.use_private_key(asio::buffer(own.key), asio::ssl::context::pem);
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  const unsigned short port = acceptor.local_endpoint().port();
  const auto stopping = vigil::with_cancel(vigil::background());
  auto server = vigil::spawn([&] {
    vigil::io::serve_each<session>(stopping.ctx,
                                   acceptor,
                                   echo(secret),
                                   {.connections = connections, .grace = 0s, .idle = 1h});
  });
  vigil::blocking([&] {
    std::array<double, 2> held{};
    put(out, port);
    for (double& now : held) {
      if (get(in) == 0) std::exit(1);
      ::usleep(100'000);
      now = static_cast<double>(bench::memory_held());
      put(out, 1);
    }
    const auto n = static_cast<double>(connections - connections / 100);
    std::printf(
        "%zu idle TLS connections: %.0f bytes each\n", connections, (held[1] - held[0]) / n);
  });
  stopping.cancel();
  server.join();
}

}  // namespace

int main(int argc, char** argv) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const long asked = argc > 1 ? std::atol(argv[1]) : 10'000;
  if (asked < 100 || static_cast<rlim_t>(asked) + 100 > limit.rlim_cur) {
    std::fputs("usage: tls_kept CONNECTIONS, at least 100 and within the limit of descriptors\n",
               stderr);
    return 2;
  }
  const auto connections = static_cast<std::size_t>(asked);
  std::array<int, 2> there{};
  std::array<int, 2> back{};
  if (::pipe(there.data()) != 0 || ::pipe(back.data()) != 0) return 1;
  if (::fork() == 0) {
    ::close(there[1]);
    ::close(back[0]);
    be_clients(connections, there[0], back[1]);
    get(there[0]);  // until the other one ends
    std::_Exit(0);
  }
  ::close(there[0]);
  ::close(back[1]);
  vigil::run([&] { serve(connections, back[0], there[1]); });
  return 0;
}
