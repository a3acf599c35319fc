// Short uses of names of vigil-io that no other example shows, as examples/reference.cpp
// has them for vigil.
//
// Run:    build/release/examples/io/reference_io
// Prints: what each piece does.
#include <vigil/io.hpp>
#include <vigil/io/co.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>
#include <string_view>

#include <boost/asio.hpp>

namespace asio = boost::asio;
namespace io = vigil::io;
using namespace std::chrono_literals;

namespace {

//! [restart]
void goes_on() {
  asio::io_context context;
  vigil::options settings;
  io::attach(settings, context);
  vigil::run(settings, [&] {
    context.stop();  // I/O stands still
    io::restart(context);
    asio::steady_timer(context, 1ms).async_wait(io::use_fiber);
    std::puts("the io_context goes on");
  });
}

//! [restart]

void posts() {
  vigil::latch done(1);
  //! [basic_fiber_executor]
  const io::basic_fiber_executor<true, false> later =
      asio::require(io::executor(), asio::execution::blocking.never);
  later.execute([&done] {
    vigil::sleep_for(1ms);  // a handler on a fiber may wait
    std::puts("later, on a fiber");
    done.count_down();
  });
  //! [basic_fiber_executor]
  done.wait();
}

//! [fiber_token]
std::string read_line(io::memory_stream& from, const io::fiber_token& how) {
  std::string line;
  asio::async_read_until(from, asio::dynamic_buffer(line), '\n', how);
  return line;
}

//! [fiber_token]

//! [write_some]
vigil::task<> offer(io::deadline_stream<io::memory_stream>& peer, std::string_view bytes) {
  const std::size_t n = co_await io::co::write_some(peer, asio::buffer(bytes));
  std::printf("room for %zu of %zu bytes\n", n, bytes.size());
}

//! [write_some]

void in_memory() {
  auto [near, far] = io::memory_pipe(4);
  vigil::latch done(1);
  //! [memory_executor]
  const io::memory_executor within = near.get_executor();
  asio::post(within, [&done] {
    std::puts("within the program");  // on a fiber of its own
    done.count_down();
  });
  //! [memory_executor]
  done.wait();

  io::deadline_stream<io::memory_stream> peer(std::move(far));
  vigil::spawn(offer(peer, "one\ntwo\n")).join();
  //! [use_fiber_t]
  constexpr io::use_fiber_t plain{};  // as io::use_fiber
  std::string line = read_line(near, plain.within(5s));
  line.pop_back();
  std::puts(line.c_str());
  //! [use_fiber_t]
}

//! [connection]
using peer_of_a_count = io::connection<int, io::deadline_stream<io::memory_stream>>;

io::afterwards count_lines(peer_of_a_count& peer, const vigil::context&) {
  if (peer.is_idle()) return io::afterwards::close;
  boost::system::error_code error;
  const auto n = asio::read_until(peer.stream(), asio::dynamic_buffer(peer.input()), '\n', error);
  if (error) return io::afterwards::close;
  peer.input().erase(0, n);
  std::printf("line %d\n", ++peer.state());
  return io::afterwards::keep;
}

//! [connection]

void serving() {
  io::memory_acceptor acceptor;
  auto server = vigil::spawn([&acceptor] { io::serve_each<int>(acceptor, count_lines); });
  io::memory_stream client = acceptor.connect();
  asio::async_write(client, asio::buffer("a\nb\n", 4), io::use_fiber);
  vigil::testing::settle();
}

}  // namespace

int main() {
  goes_on();
  vigil::run(posts);
  return vigil::testing::run_virtual([] {
    in_memory();
    serving();
  });
}
