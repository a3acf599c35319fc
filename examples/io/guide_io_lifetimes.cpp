// The code of docs/guide/lifetimes.md about I/O that is right: each function is one
// passage there.
//
// Run:    build/release/examples/io/guide_io_lifetimes
// Prints: what each passage does.
#include <vigil/io.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include <boost/asio.hpp>

namespace asio = boost::asio;
namespace io = vigil::io;
using asio::ip::tcp;
using io::use_fiber;
using namespace std::chrono_literals;

namespace {

void buffers(io::memory_stream& peer) {
  //! [buffers]
  std::array<char, 64> bytes;
  boost::system::error_code error;
  peer.async_read_some(asio::buffer(bytes), asio::redirect_error(use_fiber.within(1s), error));
  std::puts(error.message().c_str());  // the read has ended: nothing touches `bytes` any more
  //! [buffers]
}

void named(io::memory_stream& near, io::memory_stream& far) {
  //! [pending]
  std::string frame(5, ' ');  // before the operation that fills it
  io::pending<std::size_t> reads(
      [&](auto token) { return asio::async_read(near, asio::buffer(frame), token); });
  asio::async_write(far, asio::buffer("frame", 5), use_fiber);
  std::printf("%zu bytes: %s\n", reads.get(), frame.c_str());
  //! [pending]
}

void idle() {
  //! [idle]
  io::idle_list idle(2min);  // before the streams that join it
  auto [near, far] = io::memory_pipe();
  io::deadline_stream<io::memory_stream> peer(std::move(near));
  peer.set_idle_list(idle);
  char byte = 0;
  boost::system::error_code error;
  peer.read_some(asio::buffer(&byte, 1), error);
  std::puts(error == asio::error::timed_out ? "nothing for two minutes" : "?");
  //! [idle]
}

void attached() {
  //! [context]
  asio::io_context context;  // before the objects on it, and before the run
  tcp::acceptor kept(context, {asio::ip::address_v4::loopback(), 0});
  vigil::options settings;
  io::attach(settings, context);
  vigil::run(settings, [&kept] {
    tcp::socket client(io::io_context());  // of the run: a local of one of its fibers
    client.async_connect(kept.local_endpoint(), use_fiber);
    const tcp::socket server = kept.async_accept(use_fiber);
    std::puts("connected");
  });
  std::puts(kept.is_open() ? "the acceptor is still there" : "?");
  //! [context]
}

void coroutines() {
  //! [coroutine]
  int n = 41;
  const auto next =
      [](int of) -> asio::awaitable<int> {  // no captures: arguments live in the frame
    co_await asio::post(asio::use_awaitable);
    co_return of + 1;
  };
  std::printf("%d\n", asio::co_spawn(io::executor(), next(n), use_fiber));
  //! [coroutine]
}

void served() {
  //! [serve]
  std::atomic<int> requests = 0;  // before the server, whose fibers use both
  io::memory_acceptor acceptor;
  auto server = vigil::spawn([&] {
    io::serve(acceptor, [&requests](io::memory_stream peer) {
      asio::async_write(peer, asio::buffer("hello", 5), use_fiber);
      ++requests;
    });
  });
  io::memory_stream client = acceptor.connect();
  std::string text;
  boost::system::error_code eof;
  asio::async_read(client, asio::dynamic_buffer(text), asio::redirect_error(use_fiber, eof));
  std::printf("%s\n", text.c_str());
  acceptor.close();
  server.join();  // serve() returns when all handlers have ended
  std::printf("%d served\n", requests.load());
  //! [serve]
}

}  // namespace

int main() {
  vigil::testing::run_virtual([] {
    auto [near, far] = io::memory_pipe();
    buffers(near);
    named(near, far);
    idle();
    served();
  });
  attached();
  vigil::run([] { coroutines(); });
}
