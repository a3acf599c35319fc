// The sockets that fibers wait for, in dumps.
#include "core/sched/worker/scheduler.hpp"
#include "inspect/inspect_helpers.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"
#include "support/temporary_folder.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/select.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/io/use_fiber.hpp>

#include <functional>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect_pipe.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/readable_pipe.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/writable_pipe.hpp>
#include <boost/asio/write.hpp>
#include <boost/json/parse.hpp>

#include <stdlib.h>
#include <unistd.h>

using namespace vigil::testing_support;

namespace {

namespace asio = boost::asio;
namespace io = vigil::io;
using asio::ip::tcp;
using local = asio::local::stream_protocol;
using boost::system::error_code;

// The line of the fiber with this name, once it waits for I/O.
std::string waiting_line(const char* name) {
  for (;;) {
    const std::string line = fiber_line(inspected(), name);
    if (has(line, "[parked: I/O")) return line;
    vigil::sleep_for(std::chrono::milliseconds(1));
  }
}

// The line of a fiber that reads from this stream.
template <class Stream>
std::string line_of_reader(Stream& s) {
  auto f = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&s] {
    char byte = 0;
    error_code ignored;
    s.read_some(asio::buffer(&byte, 1), ignored);
  });
  std::string line = waiting_line("reader");
  f.request_stop();
  return line;
}

std::string text_of(const tcp::endpoint& e) {
  const std::string host = e.address().to_string();
  return (e.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(e.port());
}

// The second step of an operation, by the handler of the first.
template <class Handler>
struct waits_for_timer {
  using cancellation_slot_type = asio::associated_cancellation_slot_t<Handler>;

  cancellation_slot_type get_cancellation_slot() const noexcept {
    return asio::get_associated_cancellation_slot(handler);
  }

  using executor_type = asio::associated_executor_t<Handler>;

  executor_type get_executor() const noexcept { return asio::get_associated_executor(handler); }

  void operator()(error_code) { timer.async_wait(std::move(handler)); }

  Handler handler;
  asio::steady_timer& timer;
};

// Connects to itself, and returns the accepted socket.
struct tcp_pair {
  explicit tcp_pair(const char* host)
      : acceptor(io::io_context(), {asio::ip::make_address(host), 0}), client(io::io_context()) {
    client.connect(acceptor.local_endpoint());
    server.emplace(acceptor.accept());
  }

  tcp::acceptor acceptor;
  tcp::socket client;
  std::optional<tcp::socket> server;
};

void check_tcp(const char* host) {
  tcp_pair pair(host);
  const int number = pair.server->native_handle();
  const std::string near = text_of(pair.server->local_endpoint());
  const std::string far = text_of(pair.server->remote_endpoint());
  io::deadline_stream<tcp::socket> s(std::move(*pair.server));
  const std::string line = line_of_reader(s);
  NOTE(line);
  CHECK(has(line,
            "[parked: I/O of socket " + std::to_string(number) + " (tcp " + near + ", peer " + far +
                "), for "));
}

}  // namespace

TEST_SUITE("sockets") {
  TEST_CASE("a reader names its socket and both ends") {
    vigil::run([] { check_tcp("127.0.0.1"); });
  }

  TEST_CASE("the ends of a socket over IPv6 are in brackets") {
    vigil::run([] {
      try {
        check_tcp("::1");
        check_tcp("::ffff:127.0.0.1");
      } catch (const boost::system::system_error&) {
        MESSAGE("skipped: no IPv6 here");
      }
    });
  }

  TEST_CASE("serve names its acceptor, and that it listens") {
    vigil::run([] {
      tcp::acceptor a(io::io_context(), {asio::ip::make_address("127.0.0.1"), 0});
      const std::string number = std::to_string(a.native_handle());
      const std::string near = text_of(a.local_endpoint());
      auto f = vigil::spawn(vigil::fiber_options{.name = "server"},
                            [&] { io::serve(a, [](tcp::socket) {}); });
      const std::string line = waiting_line("server");
      NOTE(line);
      CHECK(has(line, "I/O of socket " + number + " (tcp " + near + ", listening), "));
      f.request_stop();
    });
  }

  TEST_CASE("a Unix socket is named by its path, escaped, or by its peer's") {
    vigil::run([] {
      const temporary_folder folder;
      const std::string path = folder.file("a\nb");
      {
        local::acceptor a(io::io_context(), local::endpoint(path));
        local::socket client(io::io_context());
        client.connect(local::endpoint(path));
        io::deadline_stream<local::socket> near(a.accept());
        io::deadline_stream<local::socket> far(std::move(client));
        const std::string shown = folder.file("a\\nb");
        CHECK(has(line_of_reader(near), " (unix " + shown + "), "));
        CHECK(has(line_of_reader(far), " (unix, peer " + shown + "), "));
      }
      ::unlink(path.c_str());
      local::acceptor abstract(io::io_context(),
                               local::endpoint(std::string("\0vigil-sockets-test", 19)));
      auto f = vigil::spawn(vigil::fiber_options{.name = "server"},
                            [&] { io::serve(abstract, [](local::socket) {}); });
      CHECK(has(waiting_line("server"), " (unix @vigil-sockets-test, listening), "));
      f.request_stop();
    });
  }

  TEST_CASE("a pipe is a descriptor without ends") {
    vigil::run([] {
      asio::readable_pipe out(io::io_context());
      asio::writable_pipe in(io::io_context());
      asio::connect_pipe(out, in);
      const std::string number = std::to_string(out.native_handle());
      io::deadline_stream<asio::readable_pipe> s(std::move(out));
      CHECK(has(line_of_reader(s), "[parked: I/O of descriptor " + number + ", for "));
    });
  }

  TEST_CASE("a select names its socket beside its channel") {
    vigil::run([] {
      local::socket near(io::io_context());
      local::socket far(io::io_context());
      asio::local::connect_pair(near, far);
      const std::string number = std::to_string(near.native_handle());
      io::deadline_stream<local::socket> s(std::move(near));
      auto jobs = vigil::make_channel<int>(0, vigil::named("jobs"));
      auto f = vigil::spawn(vigil::fiber_options{.name = "selector"}, [&] {
        char byte = 0;
        vigil::select(vigil::on_recv(jobs), io::on_read(s, asio::buffer(&byte, 1)));
      });
      std::string line;
      while (!has(line = fiber_line(inspected(), "selector"), "[parked: select"))
        vigil::sleep_for(std::chrono::milliseconds(1));
      NOTE(line);
      CHECK(has(line, "select (receive from the channel \"jobs\" made at "));
      CHECK(has(line, ", I/O of descriptor " + number + "), for "));
      f.request_stop();
    });
  }

  TEST_CASE("a descriptor that was closed behind the fiber's back is said to be") {
    vigil::run([] {
      local::socket near(io::io_context());
      local::socket far(io::io_context());
      asio::local::connect_pair(near, far);
      const int number = near.native_handle();
      io::deadline_stream<local::socket> s(std::move(near));
      auto f = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&s] {
        char byte = 0;
        error_code ignored;
        s.read_some(asio::buffer(&byte, 1), ignored);
      });
      waiting_line("reader");
      const int kept = ::dup(number);
      ::close(number);
      const std::string line = fiber_line(inspected(), "reader");
      ::dup2(kept, number);
      ::close(kept);
      NOTE(line);
      CHECK(has(line, "I/O of descriptor " + std::to_string(number) + " (closed)"));
      f.request_stop();
    });
  }

  TEST_CASE("a stream in memory and its acceptor are named by the place where they were made") {
    in_virtual([] {
      auto pipe = io::memory_pipe();
      const std::string made = "sockets_test.cpp:" + std::to_string(__LINE__ - 1);
      io::deadline_stream<io::memory_stream> s(std::move(pipe.first));
      std::string line = line_of_reader(s);
      NOTE(line);
      CHECK(has(line, "[parked: I/O made at "));
      CHECK(has(line, made));
      io::memory_acceptor a;
      const std::string made_too = "sockets_test.cpp:" + std::to_string(__LINE__ - 1);
      auto f = vigil::spawn(vigil::fiber_options{.name = "server"},
                            [&] { io::serve(a, [](io::memory_stream) {}); });
      line = waiting_line("server");
      NOTE(line);
      CHECK(has(line, made_too));
      f.request_stop();
    });
  }

  TEST_CASE("the context of a connection is named by the line that calls serve") {
    in_virtual([] {
      io::memory_acceptor a;
      std::string called;
      const auto jobs = vigil::make_channel<int>();
      auto f = vigil::spawn(vigil::fiber_options{.name = "server"}, [&] {
        const auto handler = [&](io::memory_stream, const vigil::context& ctx) {
          vigil::this_fiber::set_name("handler");
          static_cast<void>(jobs.recv(ctx));
        };
        called = "\"io::serve\" made at " __FILE__ ":" + std::to_string(__LINE__ + 1);
        io::serve(a, handler, {.connections = 1});
      });
      const io::memory_stream client = a.connect();
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      CHECK(has(fiber_line(text, "handler"), ", or the end of the context " + called + ", for "));
      const std::string line = called.substr(called.find(" made at "));
      CHECK(has(fiber_line(text, "server"), "semaphore" + line + ", "));
      f.request_stop();
    });
  }

  TEST_CASE("an operation of Asio's names its socket") {
    vigil::run([] {
      local::socket near(io::io_context());
      local::socket far(io::io_context());
      asio::local::connect_pair(near, far);
      asio::readable_pipe out(io::io_context());
      asio::writable_pipe in(io::io_context());
      asio::connect_pipe(out, in);
      char byte = 0;
      const auto shows = [](const char* words, int number, auto read) {
        auto f = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&read] {
          error_code ignored;
          read(ignored);
        });
        const std::string line = waiting_line("reader");
        f.request_stop();
        NOTE(line);
        CHECK(has(line, words + std::to_string(number)));
      };
      shows("I/O of socket ", near.native_handle(), [&](error_code& e) {
        near.async_read_some(asio::buffer(&byte, 1), asio::redirect_error(io::use_fiber, e));
      });
      shows("I/O of socket ", near.native_handle(), [&](error_code& e) {
        near.async_wait(local::socket::wait_read, asio::redirect_error(io::use_fiber, e));
      });
      shows("I/O of descriptor ", out.native_handle(), [&](error_code& e) {
        out.async_read_some(asio::buffer(&byte, 1), asio::redirect_error(io::use_fiber, e));
      });
      tcp::acceptor a(io::io_context(), {asio::ip::make_address("127.0.0.1"), 0});
      shows("I/O of socket ", a.native_handle(), [&](error_code& e) {
        a.async_accept(asio::redirect_error(io::use_fiber, e));
      });
    });
  }

  TEST_CASE("an operation of several steps names no socket of an earlier one") {
    vigil::run([] {
      local::socket near(io::io_context());
      local::socket far(io::io_context());
      asio::local::connect_pair(near, far);
      asio::steady_timer timer(io::io_context(), std::chrono::hours(1));
      auto f = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&] {
        asio::async_initiate<const io::use_fiber_t, void(error_code)>(
            [&](auto handler) {
              near.async_wait(local::socket::wait_read,
                              waits_for_timer<decltype(handler)>{std::move(handler), timer});
            },
            io::use_fiber);
      });
      std::string line = waiting_line("reader");
      NOTE(line);
      CHECK(has(line, "I/O of socket " + std::to_string(near.native_handle())));
      asio::write(far, asio::buffer("x", 1));
      for (int i = 0; i < 10'000 && has(line, "of socket"); ++i) {
        vigil::sleep_for(std::chrono::milliseconds(1));
        line = waiting_line("reader");
      }
      CHECK(has(line, "[parked: I/O, for "));
      f.request_stop();
    });
  }

  TEST_CASE("an operation of Asio's that has others inside it keeps its socket to itself") {
    vigil::run([] {
      local::socket near(io::io_context());
      local::socket far(io::io_context());
      asio::local::connect_pair(near, far);
      auto f = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&near] {
        char bytes[2];
        asio::async_read(near, asio::buffer(bytes), io::use_fiber);
      });
      CHECK(has(waiting_line("reader"), "[parked: I/O, for "));
      f.request_stop();
    });
  }

  TEST_CASE("a pending read is counted in the metrics") {
    vigil::run([] {
      const auto counts = [](const char* number) {
        return has(vigil::inspect::openmetrics(),
                   "\nvigil_io_pending{runtime=\"" +
                       std::to_string(vigil::detail::current_scheduler()->number()) + "\"} " +
                       number + "\n");
      };
      CHECK(counts("0"));
      local::socket near(io::io_context());
      local::socket far(io::io_context());
      asio::local::connect_pair(near, far);
      auto f = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&near] {
        char byte = 0;
        near.async_read_some(asio::buffer(&byte, 1), io::use_fiber);
      });
      waiting_line("reader");
      CHECK(counts("1"));
      far.write_some(asio::buffer("b", 1));
      f.join();
      CHECK(counts("0"));
    });
  }

  TEST_CASE("the JSON has the same") {
    vigil::run([] {
      tcp_pair pair("127.0.0.1");
      const int number = pair.server->native_handle();
      const std::string near = text_of(pair.server->local_endpoint());
      const std::string far = text_of(pair.server->remote_endpoint());
      io::deadline_stream<tcp::socket> s(std::move(*pair.server));
      auto f = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&s] {
        char byte = 0;
        error_code ignored;
        s.read_some(asio::buffer(&byte, 1), ignored);
      });
      waiting_line("reader");
      const boost::json::value all = boost::json::parse(
          written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = false}); }));
      f.request_stop();
      bool found = false;
      for (const auto& one : all.at("fibers").as_array()) {
        if (one.at("name").as_string() != "reader") continue;
        found = true;
        const auto& d = one.at("waits_for").at("descriptor");
        CHECK(d.at("number").as_int64() == number);
        CHECK(d.at("protocol").as_string() == "tcp");
        CHECK(d.at("local").as_string() == near);
        CHECK(d.at("peer").as_string() == far);
      }
      CHECK(found);
    });
  }
}
