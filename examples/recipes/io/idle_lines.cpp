// Reads lines from a connection, and closes it when no line has come for a minute.
//! [recipe]
#include <vigil/io.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace asio = boost::asio;
namespace io = vigil::io;
using namespace std::chrono_literals;
using stream = io::deadline_stream<io::memory_stream>;  // or of a tcp::socket

void serve(stream peer) {
  std::string bytes;
  boost::system::error_code error;
  for (;;) {
    peer.set_read_deadline(vigil::deadline_in(1min));  // for a whole line, however it drips
    const auto n = asio::read_until(peer, asio::dynamic_buffer(bytes, 4096), '\n', error);
    if (error) break;
    std::printf("line: %s", bytes.substr(0, n).c_str());
    bytes.erase(0, n);  // the rest begins the next line
  }
  std::puts(error == asio::error::timed_out ? "no line for a minute" : error.message().c_str());
}

int main() {
  return vigil::testing::run_virtual([] {
    auto [near, far] = io::memory_pipe();
    auto server =
        vigil::spawn([own = stream(std::move(near))]() mutable { serve(std::move(own)); });
    stream client(std::move(far));
    for (const char* part : {"one\ntw", "o\nthr", "e", "e"}) {
      asio::write(client, asio::buffer(std::string(part)));
      vigil::sleep_for(25s);
    }
    server.join();
  });
}

//! [recipe]
