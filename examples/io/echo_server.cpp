// echo_server: sends back the bytes that it gets, to any number of clients at a time.
//
// Run:     build/release/examples/io/echo_server [PORT], then Ctrl-C
//          nc localhost PORT, or build/release/examples/io/echo_load PORT
// Prints:  the port, and its figures at the end. Without PORT it takes a free one.
#include "echo.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <signal.h>

int main(int argc, char** argv) {
  const auto port = static_cast<unsigned short>(argc > 1 ? std::atoi(argv[1]) : 0);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::atomic<unsigned> connections{0};
  std::atomic<std::size_t> bytes{0};

  vigil::options settings;
  settings.stop_on = {SIGINT, SIGTERM};
  const int status = vigil::run(settings, [&] {
    echo::tcp::acceptor acceptor(vigil::io::io_context(), {echo::tcp::v4(), port});
    std::printf("port %u\n", static_cast<unsigned>(acceptor.local_endpoint().port()));
    std::puts("serving; Ctrl-C ends it");
    echo::serve(acceptor, [&](std::size_t n) {
      connections.fetch_add(1);
      bytes.fetch_add(n);
    });
  });
  std::printf("%u connections, %zu bytes\n", connections.load(), bytes.load());
  return status;
}
