// The code of docs/guide/io-select.md about select: each function is one passage there.
//
// Run:    build/release/examples/io/guide_io_select
// Prints: what each passage does.
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/io/pending.hpp>
#include <vigil/io/select.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio.hpp>

namespace asio = boost::asio;
namespace io = vigil::io;
using namespace std::chrono_literals;

namespace {

using stream = io::deadline_stream<io::memory_stream>;

//! [peer]
void serve(stream& peer, vigil::receiver<std::string> orders, const vigil::context& ctx) {
  std::array<char, 64> bytes;
  std::string unsent;
  for (bool over = false; !over;) {
    vigil::case_list cases;
    cases.add(io::on_read(peer, asio::buffer(bytes), [&](auto error, std::size_t n) {
      std::printf("read: %s\n", std::string(bytes.data(), n).c_str());
      over = error.failed();  // eof for example
    }));
    if (unsent.empty()) {
      cases.add(vigil::on_recv(
          orders, [&](std::optional<std::string> order) { unsent = order.value_or(""); }));
    } else {
      cases.add(
          io::on_write(peer, asio::buffer(unsent), [&](std::size_t n) { unsent.erase(0, n); }));
    }
    cases.add(vigil::on_done(ctx, [&] { over = true; }));
    vigil::select(cases);
  }
}

//! [peer]

void talk() {
  auto [one, other] = io::memory_pipe();
  stream near(std::move(one));
  stream far(std::move(other));
  auto orders = vigil::make_channel<std::string>();
  auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  auto server = vigil::spawn([&, &ctx = ctx] { serve(near, orders, ctx); });
  asio::write(far, asio::buffer("hello", 5));
  vigil::sleep_for(1s);
  orders.send("order 1");
  std::string got(7, ' ');
  asio::read(far, asio::buffer(got));
  std::printf("the peer has read: %s\n", got.c_str());
  cancel();
  server.join();
}

//! [pending]
std::string read_frame(io::memory_stream& socket, vigil::receiver<int> progress) {
  std::string frame(12, ' ');
  io::pending<std::size_t> reads(
      [&](auto token) { return asio::async_read(socket, asio::buffer(frame), token); });
  bool complete = false;
  while (!complete) {
    vigil::select(io::on_result(reads, [&] { complete = true; }),
                  vigil::on_recv(progress, [](std::optional<int> n) {
                    std::printf("%d %% of something else is done\n", n.value());
                  }));
  }
  return frame;
}

//! [pending]

void frame() {
  auto [near, far] = io::memory_pipe();
  auto progress = vigil::make_channel<int>();
  auto peer = vigil::spawn([&, &far = far] {
    for (int i = 1; i <= 3; ++i) {
      asio::async_write(far, asio::buffer("part", 4), io::use_fiber);
      vigil::sleep_for(1s);
      if (i < 3) progress.send(33 * i);
    }
  });
  std::printf("the frame: %s\n", read_frame(near, progress).c_str());
  peer.join();
}

void lose() {
  auto [near, far] = io::memory_pipe();
  asio::async_write(far, asio::buffer("late", 4), io::use_fiber);
  //! [lost]
  std::array<char, 4> bytes;
  std::string kept;
  {
    io::pending<std::size_t> reads([&, &near = near](auto token) {
      return asio::async_read(near, asio::buffer(bytes), token);
    });
    reads.on_lost([&](std::size_t n) { kept.assign(bytes.data(), n); });
  }
  std::printf("nobody took: %s\n", kept.c_str());
  //! [lost]
}

}  // namespace

int main() {
  vigil::testing::run_virtual([] {
    talk();
    frame();
    lose();
  });
}
