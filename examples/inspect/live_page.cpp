// A kitchen behind a live page, at a Unix socket and at a loopback port: cooks that wait
// for orders, waiters that want the till, a timer. While it runs:
//   curl --unix-socket PATH http://localhost/fibers.json
#include <vigil/inspect.hpp>
#include <vigil/inspect_page.hpp>
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <mutex>
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

void serve_at_a_descriptor(const vigil::context& stopping) {
  //! [descriptor]
  tcp::acceptor given(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  const int listening = given.release();  // a service may have it from systemd
  const vigil::inspect::live_page as_long_as_this =
      vigil::inspect::serve_descriptor(listening, {.stopping = stopping, .announce = false});
  //! [descriptor]
  stopping.done().recv();
}

void cook(const vigil::receiver<int>& orders) {
  volatile double heat = 0;
  while (orders.recv()) {
    for (int i = 0; i < 300'000; ++i)
      heat = heat + 1.0 / (1 + i);
    vigil::sleep_for(40ms);
  }
}

// Closes the channel at the end, so that the cooks end as well.
void take_orders(const vigil::channel<int>& orders, const vigil::context& stopping) {
  for (int i = 0; !stopping.is_done(); ++i) {
    orders.send(i);
    vigil::sleep_for(5ms);
  }
  orders.close();
}

int main() {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("vigil-live-page-" + std::to_string(::getpid()) + ".sock");
  //! [socket]
  vigil::inspect::install();  // dumps have frames then
  auto page = vigil::inspect::serve(path);
  //! [socket]
  return vigil::run(
      {.workers = 4, .grace = 5s, .stop_on = {SIGINT, SIGTERM}, .recorder_events = 16'384}, [] {
        auto orders = vigil::make_channel<int>(0, vigil::named("orders"));
        vigil::mutex till(vigil::named("till"));
        for (int i = 0; i < 40; ++i)
          vigil::go({.name = "cook " + std::to_string(i)}, &cook, orders);
        vigil::go({.name = "door"}, &take_orders, orders, vigil::background());
        vigil::fiber<> accounts = vigil::spawn({.name = "accounts"}, [&till] {
          const std::lock_guard counting(till);
          vigil::sleep_for(8h);
        });
        vigil::group waiters;
        for (int i = 0; i < 7; ++i)
          waiters.go([&till] { const std::lock_guard paying(till); });
        const vigil::scoped_timer closing = vigil::after_func(10h, [] {});
        vigil::go([] { serve_at_a_port(vigil::background()); });
        vigil::go([] { serve_at_a_descriptor(vigil::background()); });
        std::puts("serving; Ctrl-C ends it");
        std::fflush(stdout);
        vigil::background().done().recv();
        accounts.request_stop();
        std::puts("the end");
      });
}
