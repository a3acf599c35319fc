// The code of docs/guide/io.md: each function is one passage there.
//
// Run:    build/release/examples/io/guide_io
// Prints: what each passage does.
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/idle_list.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/io/resolve.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/io/serve_each.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>
#include <thread>

#include <boost/asio.hpp>

//! [names]
namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using vigil::io::use_fiber;
using unix_socket = asio::local::stream_protocol::socket;

//! [names]

namespace {

void talk() {
  //! [talk]
  auto& context = vigil::io::io_context();
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  const auto where = acceptor.local_endpoint();  // asked while no other fiber uses it

  auto server = vigil::spawn([&] {
    tcp::socket peer = acceptor.async_accept(use_fiber);
    std::string line;
    asio::async_read_until(peer, asio::dynamic_buffer(line), '\n', use_fiber);
    asio::async_write(peer, asio::buffer("you said " + line), use_fiber);
  });

  tcp::socket socket(context);
  socket.async_connect(where, use_fiber);
  asio::async_write(socket, asio::buffer("hello\n", 6), use_fiber);
  std::string answer;
  asio::async_read_until(socket, asio::dynamic_buffer(answer), '\n', use_fiber);
  std::printf("%s", answer.c_str());
  //! [talk]
  server.join();
}

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
  auto& context = vigil::io::io_context();
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

void serving() {
  //! [serve]
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  auto [stopping, stop] = vigil::with_cancel(vigil::background());

  const auto talk = [stopping = stopping](tcp::socket peer, const vigil::context& ctx) {
    std::string lines;
    for (;;) {
      // Until a request begins, the wait may end as soon as the server is to stop.
      if (lines.empty()) peer.async_wait(tcp::socket::wait_read, use_fiber.under(stopping));
      // A request that has begun has the grace.
      const auto t = use_fiber.under(ctx);
      const auto n = asio::async_read_until(peer, asio::dynamic_buffer(lines), '\n', t);
      asio::async_write(peer, asio::buffer("you said " + lines.substr(0, n)), t);
      lines.erase(0, n);
    }
  };
  const std::string port = std::to_string(acceptor.local_endpoint().port());
  auto server = vigil::spawn([&, stopping = stopping] {
    vigil::io::serve(stopping, acceptor, talk, {.connections = 1000, .grace = 5s});
  });
  //! [serve]

  //! [resolve]
  auto addresses = vigil::io::resolve("127.0.0.1", port, use_fiber.within(2s));
  tcp::socket socket(vigil::io::io_context());
  asio::async_connect(socket, addresses, use_fiber.within(5s));
  //! [resolve]
  asio::async_write(socket, asio::buffer("hello, server\n", 14), use_fiber);
  std::string answer;
  asio::async_read_until(socket, asio::dynamic_buffer(answer), '\n', use_fiber);
  std::printf("%s", answer.c_str());
  stop();
  server.join();
}

//! [serve_each]
struct session {
  int lines = 0;
};

auto answer_line = [](auto& peer, const vigil::context&) {
  using vigil::io::afterwards;
  if (peer.is_idle()) return afterwards::close;
  auto lines = asio::dynamic_buffer(peer.input());
  boost::system::error_code error;
  const std::size_t n = asio::read_until(peer.stream(), lines, '\n', error);
  if (error) return afterwards::close;  // the end of the stream as well
  const std::string line = peer.input().substr(0, n);
  lines.consume(n);
  const std::string answer = std::to_string(++peer.state().lines) + ": " + line;
  asio::write(peer.stream(), asio::buffer(answer), error);
  return error ? afterwards::close : afterwards::keep;
};

//! [serve_each]

void serving_each() {
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  const auto where = acceptor.local_endpoint();
  auto [stopping, stop] = vigil::with_cancel(vigil::background());
  //! [serving_each]
  auto server = vigil::spawn([&, stopping = stopping] {
    vigil::io::serve_each<session>(stopping, acceptor, answer_line, {.idle = 1min});
  });
  //! [serving_each]
  tcp::socket socket(vigil::io::io_context());
  socket.async_connect(where, use_fiber);
  asio::async_write(socket, asio::buffer("one\ntwo\n", 8), use_fiber);
  std::string answers;
  asio::async_read_until(socket, asio::dynamic_buffer(answers), "two\n", use_fiber);
  std::printf("%s", answers.c_str());
  stop();
  server.join();
}

void idle() {
  vigil::testing::run_virtual([] {
    //! [idle]
    vigil::io::idle_list idle(2min);  // one for all connections
    vigil::io::memory_acceptor acceptor;
    auto server = vigil::spawn([&] {
      vigil::io::serve(acceptor, [&](vigil::io::memory_stream socket) {
        vigil::io::deadline_stream<vigil::io::memory_stream> peer(std::move(socket));
        peer.set_idle_list(idle);
        char byte = 0;
        boost::system::error_code error;
        while (peer.read_some(asio::buffer(&byte, 1), error) != 0) {
        }
        if (error == asio::error::timed_out) std::puts("nothing for two minutes");
      });
    });
    vigil::io::memory_stream client = acceptor.connect();
    //! [idle]
    const auto start = vigil::clock::now();
    vigil::sleep_for(1min);
    client.async_write_some(asio::buffer("x", 1), use_fiber);
    char byte = 0;
    static_cast<void>(client.async_read_some(asio::buffer(&byte, 1), asio::as_tuple(use_fiber)));
    std::printf("closed after %lld s\n",
                static_cast<long long>((vigil::clock::now() - start) / 1s));
  });
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

  // Your own threads may run it as well.
  std::thread mine([&] { context.run(); });
  rt.run([&] {
    asio::steady_timer t(context, 1ms);
    t.async_wait(use_fiber);
    std::puts("waited in the program's own io_context");
  });
  mine.join();  // the run has ended, and nothing else is to come
  //! [attach]
}

void announced() {
  //! [handler]
  auto lines = vigil::make_channel<std::string>(16);
  {
    const auto more_to_come = vigil::runtime::current().make_work_guard();
    asio::post(vigil::io::io_context(), [lines] {
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
    unix_socket silent(vigil::io::io_context());
    unix_socket peer(vigil::io::io_context());
    asio::local::connect_pair(silent, peer);
    talk();
    deadlines(silent);
    wrappers(silent);
    under_a_context(silent);
    streams();
    serving();
    serving_each();
    announced();
  });
  in_memory();
  idle();
  attached();
  return status;
}
