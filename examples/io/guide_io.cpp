// The code of docs/guide/io.md: each function is one passage there.
//
// Run:    build/release/examples/io/guide_io
// Prints: what each passage does.
#include <vigil/io/context.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>
#include <thread>

#include <boost/asio.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using vigil::io::use_fiber;

namespace {

void talk() {
  //! [talk]
  auto& context = vigil::io::context();
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});

  auto server = vigil::spawn([&] {
    tcp::socket peer = acceptor.async_accept(use_fiber);
    std::string line;
    asio::async_read_until(peer, asio::dynamic_buffer(line), '\n', use_fiber);
    asio::async_write(peer, asio::buffer("you said " + line), use_fiber);
  });

  tcp::socket socket(context);
  socket.async_connect(acceptor.local_endpoint(), use_fiber);
  asio::async_write(socket, asio::buffer("hello\n", 6), use_fiber);
  std::string answer;
  asio::async_read_until(socket, asio::dynamic_buffer(answer), '\n', use_fiber);
  std::printf("%s", answer.c_str());
  //! [talk]
  server.join();
}

using unix_socket = asio::local::stream_protocol::socket;

void deadlines(unix_socket& silent) {
  //! [deadline]
  std::string bytes(100, ' ');
  try {
    silent.async_read_some(asio::buffer(bytes), use_fiber.within(20ms));
  } catch (const boost::system::system_error& e) {
    std::printf("%s\n", e.code() == asio::error::timed_out ? "timed out" : e.what());
  }
  //! [deadline]
  //! [budget]
  const auto until = vigil::clock::now() + 30ms;  // for all of it
  const auto [first, n] =
      silent.async_read_some(asio::buffer(bytes), asio::as_tuple(use_fiber.until(until)));
  const auto [second, m] =
      silent.async_read_some(asio::buffer(bytes), asio::as_tuple(use_fiber.until(until)));
  std::printf("%zu and %zu bytes, %s\n", n, m, first && second ? "both too late" : "in time");
  //! [budget]
}

void wrappers(unix_socket& silent) {
  //! [wrappers]
  char byte = 0;
  const auto room = asio::buffer(&byte, 1);
  const auto soon = use_fiber.within(1ms);

  std::size_t n = 0;
  boost::system::error_code error;
  n = silent.async_read_some(room, asio::redirect_error(soon, error));
  const auto [code, same] = silent.async_read_some(room, asio::as_tuple(soon));
  std::printf("%zu bytes, %s\n", n + same, error == code ? "the same error" : "not the same");
  //! [wrappers]
}

void under_a_context(unix_socket& silent) {
  //! [under]
  auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  auto reader = vigil::spawn([&, ctx = ctx] {
    char byte = 0;
    try {
      silent.async_read_some(asio::buffer(&byte, 1), use_fiber.under(ctx));
    } catch (const vigil::cancelled&) {
      std::puts("cancelled, and the buffer is ours again");
    }
  });
  vigil::sleep_for(1ms);
  cancel();
  reader.join();
  //! [under]
}

void streams() {
  auto& context = vigil::io::context();
  //! [stream]
  using stream = vigil::io::deadline_stream<unix_socket>;
  stream near(context);
  stream far(context);
  asio::local::connect_pair(near.next_layer(), far.next_layer());

  near.set_read_deadline(vigil::clock::now() + 1h);
  auto reader = vigil::spawn([&] {
    std::string line;
    boost::system::error_code error;
    asio::read_until(near, asio::dynamic_buffer(line), '\n', error);
    std::puts(error == asio::error::timed_out ? "an hour is over, it seems" : line.c_str());
  });
  vigil::sleep_for(1ms);
  near.set_read_deadline(vigil::clock::now());  // ends the read that waits
  reader.join();

  near.set_read_deadline(vigil::clock::time_point::max());  // as good as new
  far.write_some(asio::buffer("hello again\n", 12));
  std::string line;
  asio::read_until(near, asio::dynamic_buffer(line), '\n');
  std::printf("%s", line.c_str());
  //! [stream]
}

void in_memory() {
  //! [memory]
  vigil::testing::run_virtual([] {
    auto [client, server] = vigil::io::memory_pipe();
    vigil::io::deadline_stream<vigil::io::memory_stream> peer(std::move(server));
    const auto start = vigil::clock::now();
    peer.set_read_deadline(start + 2min);
    char byte = 0;
    boost::system::error_code error;
    peer.read_some(asio::buffer(&byte, 1), error);
    const auto waited = vigil::clock::now() - start;
    std::printf("%s after exactly %lld s\n",
                error == asio::error::timed_out ? "timed out" : "read",
                static_cast<long long>(waited / 1s));
  });
  //! [memory]
}

void attached() {
  //! [attach]
  asio::io_context context;
  vigil::options settings;
  vigil::io::attach(settings, context);
  vigil::runtime rt(settings);

  // Threads of your own may run it as well, until you stop it.
  std::thread mine([&] { context.run(); });
  rt.run([&] {
    asio::steady_timer t(context, 1ms);
    t.async_wait(use_fiber);
    std::puts("waited in the program's own io_context");
  });
  context.stop();
  mine.join();
  //! [attach]
}

void announced() {
  //! [handler]
  auto lines = vigil::make_channel<std::string>(16);
  {
    const auto more_to_come = vigil::runtime::current().make_work_guard();
    asio::post(vigil::io::context(), [lines] {
      // On a worker's own stack: nothing here may wait.
      static_cast<void>(lines.try_send("from a handler"));
    });
    std::puts(lines.recv()->c_str());
  }
  //! [handler]
}

}  // namespace

int main() {
  const int status = vigil::run([] {
    unix_socket silent(vigil::io::context());
    unix_socket peer(vigil::io::context());
    asio::local::connect_pair(silent, peer);
    talk();
    deadlines(silent);
    wrappers(silent);
    under_a_context(silent);
    streams();
    announced();
  });
  in_memory();
  attached();
  return status;
}
