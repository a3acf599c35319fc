// Sends a sign of life when nothing else was sent for 30 seconds.
//! [recipe]
#include <vigil/io.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace asio = boost::asio;
namespace io = vigil::io;
using namespace std::chrono_literals;
using stream = io::deadline_stream<io::memory_stream>;

// The only fiber that writes; others send it what is to be written.
void write_lines(stream& peer, const vigil::receiver<std::string>& lines) {
  for (;;) {
    const auto line = lines.recv_for(30s);
    if (line.is_closed()) break;
    peer.set_write_deadline(vigil::deadline_in(10s));  // the other side may have stopped reading
    asio::write(peer, asio::buffer(line ? *line : std::string("still here\n")));
  }
  boost::system::error_code ignored;
  peer.close_write(ignored);
}

int main() {
  return vigil::testing::run_virtual([] {
    auto [near, far] = io::memory_pipe();
    stream peer(std::move(near));
    stream other(std::move(far));
    const auto lines = vigil::make_channel<std::string>();
    auto writer = vigil::spawn([&] { write_lines(peer, lines); });
    vigil::go([lines] {
      lines.send("one\n");
      vigil::sleep_for(70s);
      lines.send("two\n");
      lines.close();
    });
    std::string bytes;
    boost::system::error_code end;
    const auto start = vigil::clock::now();
    while (const auto n = asio::read_until(other, asio::dynamic_buffer(bytes), '\n', end)) {
      const auto passed = vigil::clock::now() - start;
      std::printf("%2d s: %s", int(passed / 1s), bytes.substr(0, n).c_str());
      bytes.erase(0, n);
    }
    writer.join();
  });
}

//! [recipe]
