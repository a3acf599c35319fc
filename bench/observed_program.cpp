// A program for callgrind to look at: whether a server that has a live page executes
// more instructions for a request than one that has none.
//
//   observed_program none N     N requests over a loopback connection
//   observed_program served N   the same, with a live page that nobody asks
//   observed_program asked N    the page is asked for its state 20 times meanwhile
//
//   valgrind --tool=callgrind --separate-threads=yes bench/observed_program asked 20000
//
// The server and its client are fibers of one worker, the main thread: what thread 1
// executes for 20 000 requests, less that for 10 000, is the cost of 10 000. There is a
// second thread in each case: the C library takes shorter ways in a process without one.
#include <vigil/inspect_page.hpp>
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;
using vigil::io::use_fiber;

constexpr int times_asked = 20;

std::atomic<int> answered{0};

void ask_page(const std::string& path) {
  const int s = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  path.copy(a.sun_path, sizeof a.sun_path - 1);
  if (::connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0)
    throw std::runtime_error("the page cannot be reached");
  constexpr std::string_view request = "GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
  static_cast<void>(!::send(s, request.data(), request.size(), MSG_NOSIGNAL));
  std::array<char, 16384> piece;
  ssize_t n = 0;
  std::string answer;
  while ((n = ::recv(s, piece.data(), piece.size(), 0)) > 0)
    answer.append(piece.data(), static_cast<std::size_t>(n));
  ::close(s);
  if (!answer.starts_with("HTTP/1.1 200 ")) throw std::runtime_error("no answer: " + answer);
}

// Sends back what comes, 64 bytes at a time.
void answer_all(tcp::socket peer) {
  std::array<char, 64> bytes;
  for (;;) {
    const auto [error, n] =
        asio::async_read(peer, asio::buffer(bytes), asio::as_tuple(use_fiber.within(1min)));
    if (error) return;
    asio::async_write(peer, asio::buffer(bytes, n), use_fiber.within(1min));
  }
}

void request_all(unsigned short port, int requests) {
  tcp::socket server(vigil::io::io_context());
  server.async_connect({asio::ip::address_v4::loopback(), port}, use_fiber);
  std::array<char, 64> bytes{};
  for (int i = 0; i < requests; ++i) {
    asio::async_write(server, asio::buffer(bytes), use_fiber.within(1min));
    asio::async_read(server, asio::buffer(bytes), use_fiber.within(1min));
    answered.store(i + 1);
  }
}

int run(std::string_view how, int requests) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("vigil-observed-" + std::to_string(::getpid()) + ".sock");
  std::optional<vigil::inspect::live_page> page;
  if (how != "none") page.emplace(vigil::inspect::serve(path, {.announce = false}));
  std::thread asking([how, &path, requests] {
    for (int i = 1; i <= times_asked; ++i) {
      while (answered.load() < requests / times_asked * i)
        std::this_thread::sleep_for(1ms);
      if (how == "asked") ask_page(path);
    }
  });
  vigil::options settings;
  settings.workers = 1;
  settings.stuck_limit = 0s;
  vigil::run(settings, [requests] {
    tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
    const unsigned short port = acceptor.local_endpoint().port();
    auto server = vigil::spawn([&acceptor] { answer_all(acceptor.async_accept(use_fiber)); });
    request_all(port, requests);
    server.join();
  });
  asking.join();
  std::printf("%d requests\n", answered.load());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc == 3 ? argv[1] : "";
  const int requests = argc == 3 ? std::atoi(argv[2]) : 0;
  if ((how != "none" && how != "served" && how != "asked") || requests < times_asked) {
    std::fprintf(stderr, "usage: observed_program none|served|asked N, with N of at least 20\n");
    return 2;
  }
  return run(how, requests);
}
