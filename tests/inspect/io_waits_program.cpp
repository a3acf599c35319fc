// A program for debuggers: fibers that wait for sockets, a pipe, a function on a side
// pool and a channel with a name. For each it prints a line with the fiber's name and the
// object of its wait, as a debugger must show it; then it calls all_wait().
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect_pipe.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/readable_pipe.hpp>
#include <boost/asio/writable_pipe.hpp>

#include <unistd.h>

namespace asio = boost::asio;
namespace io = vigil::io;
using asio::ip::tcp;
using local = asio::local::stream_protocol;

// A breakpoint stands here.
extern "C" [[gnu::noinline]] void all_wait() {
  asm volatile("" ::: "memory");
}

namespace {

template <class F>
auto start(const char* name, F f) {
  return vigil::spawn(vigil::fiber_options{.name = name}, f);
}

template <class Stream>
void read_one(Stream& s) {
  char byte = 0;
  boost::system::error_code ignored;
  s.read_some(asio::buffer(&byte, 1), ignored);
}

std::string text_of(const tcp::endpoint& e) {
  return e.address().to_string() + ":" + std::to_string(e.port());
}

void wait_in_all_ways() {
  tcp::acceptor accepts(io::io_context(), {asio::ip::make_address("127.0.0.1"), 0});
  tcp::socket client(io::io_context());
  client.connect(accepts.local_endpoint());
  io::deadline_stream<tcp::socket> peer(accepts.accept());
  asio::readable_pipe out(io::io_context());
  asio::writable_pipe in(io::io_context());
  asio::connect_pipe(out, in);
  io::deadline_stream<asio::readable_pipe> piped(std::move(out));
  local::acceptor abstract(
      io::io_context(), local::endpoint('\0' + std::string("vigil-") + std::to_string(::getpid())));
  auto jobs = vigil::make_channel<int>(0, vigil::named("jobs"));
  std::atomic<int> thread{0};
  std::atomic<bool> stop{false};

  const auto server = start("server", [&] { io::serve(accepts, [](tcp::socket) {}); });
  const auto reader = start("reader", [&] { read_one(peer); });
  const auto piper = start("piper", [&] { read_one(piped); });
  const auto unixer = start("unixer", [&] { io::serve(abstract, [](local::socket) {}); });
  auto worker = start("worker", [&] { static_cast<void>(jobs.recv()); });
  auto caller = start("caller", [&] {
    vigil::blocking([&] {
      thread.store(::gettid());
      while (!stop.load())
        std::this_thread::yield();
    });
  });
  const tcp::socket& accepted = peer.next_layer();
  // All fibers have run once main comes on again, the only worker's only other one.
  while (thread.load() == 0)
    vigil::sleep_for(std::chrono::milliseconds(1));
  std::printf("server: socket %d (tcp %s, listening)\n",
              accepts.native_handle(),
              text_of(accepts.local_endpoint()).c_str());
  std::printf("reader: socket %d (tcp %s, peer %s)\n",
              peer.next_layer().native_handle(),
              text_of(accepted.local_endpoint()).c_str(),
              text_of(accepted.remote_endpoint()).c_str());
  std::printf("piper: descriptor %d\n", piped.next_layer().native_handle());
  std::printf(
      "unixer: socket %d (unix @vigil-%d, listening)\n", abstract.native_handle(), ::getpid());
  std::printf("worker: the channel \"jobs\" made at \n");
  std::printf("caller: (on thread %d)\n", thread.load());
  std::fflush(stdout);
  all_wait();
  stop.store(true);
  jobs.close();
  worker.join();
  caller.join();
}

}  // namespace

int main() {
  vigil::options one;
  one.workers = 1;
  vigil::run(one, &wait_in_all_ways);
}
