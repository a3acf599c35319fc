// A byte through an io::deadline_stream: from the call of read_some, which finds nothing
// and waits under a deadline, to its return with the byte that comes in from outside.
#include "marks.hpp"

#include <vigil/io.hpp>

#include <array>
#include <chrono>
#include <thread>

#include <boost/asio/local/stream_protocol.hpp>

#include <sys/socket.h>

int main() {
  using namespace std::chrono_literals;
  using boost::asio::local::stream_protocol;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return 1;
  on_one_worker([&] {
    vigil::spawn([&] {
      vigil::io::deadline_stream<stream_protocol::socket> stream(
          vigil::io::io_context(), stream_protocol(), ends[0]);
      stream.set_read_deadline(vigil::clock::now() + 1h);
      std::array<char, 64> room{};
      for (int i = 1; i <= rounds; ++i) {
        // Long enough for the worker to be asleep, even slowed down by a debugger.
        std::thread outside([&, wait = i == rounds ? 5000ms : 50ms] {
          std::this_thread::sleep_for(wait);
          static_cast<void>(::send(ends[1], "x", 1, 0));
        });
        if (i == rounds) walk_begins();
        stream.read_some(boost::asio::buffer(room));
        if (i == rounds) walk_ends();
        outside.join();
      }
    }).join();
  });
}
