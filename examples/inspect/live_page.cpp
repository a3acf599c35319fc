// A live page, at a Unix socket and at a loopback port. While it runs:
//   curl --unix-socket PATH http://localhost/fibers.json
#include <vigil/inspect.hpp>
#include <vigil/inspect_page.hpp>
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include <unistd.h>

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

void serve_at_a_port(const vigil::context& stopping) {
  //! [port]
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  auto page = vigil::inspect::serve(std::move(acceptor), {.stopping = stopping});
  //! [port]
  stopping.done().recv();
}

void wait_for_orders(const vigil::receiver<int>& orders) {
  static_cast<void>(orders.recv());
}

int main() {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("vigil-live-page-" + std::to_string(::getpid()) + ".sock");
  //! [socket]
  vigil::inspect::install();  // dumps have frames then
  auto page = vigil::inspect::serve(path);
  //! [socket]
  return vigil::run({.grace = 5s, .stop_on = {SIGINT, SIGTERM}, .recorder_events = 16'384}, [] {
    auto orders = vigil::make_channel<int>();
    for (int i = 0; i < 10; ++i)
      vigil::go(&wait_for_orders, orders);
    vigil::go([] { serve_at_a_port(vigil::background()); });
    std::puts("serving; Ctrl-C ends it");
    std::fflush(stdout);
    vigil::background().done().recv();
    orders.close();
    std::puts("the end");
  });
}
