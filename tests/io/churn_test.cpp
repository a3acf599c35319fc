// Connections that come and go leave nothing behind, however they end; and how a reset by
// the peer looks in each state. VIGIL_LONG=1: 100 000 of them.
#include "io/io_test.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/serve.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include <boost/asio/ip/tcp.hpp>

#include <malloc.h>

using namespace vigil::io_testing;

namespace {

using tcp = asio::ip::tcp;
using tcp_stream = vigil::io::deadline_stream<tcp::socket>;

int connections() {
  return std::getenv("VIGIL_LONG") != nullptr ? 100'000 : rounds(2000);
}

long open_descriptors() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

// Bytes in use by malloc; always 0 under a sanitizer, which has its own.
long bytes_in_use() {
  return static_cast<long>(::mallinfo2().uordblks + ::mallinfo2().hblkhd);
}

// The peer sees a reset, and the port does not linger.
void reset(tcp::socket& s) {
  s.set_option(asio::socket_base::linger(true, 0));
  s.close();
}

// One connection, which ends in one of several ways.
void visit(const tcp::endpoint& server, int n) {
  tcp::socket s(vigil::io::io_context());
  s.async_connect(server, use_fiber);
  char byte = 0;
  const auto to = asio::buffer(&byte, 1);
  switch (n % 5) {
    case 0:  // at once
      break;
    case 1:  // after an echo
      asio::async_write(s, asio::buffer("x", 1), use_fiber);
      asio::async_read(s, to, use_fiber);
      break;
    case 2:  // in the middle of an echo
      asio::async_write(s, asio::buffer("x", 1), use_fiber);
      break;
    case 3:  // after a read that has timed out
      CHECK(error_of([&] { s.async_read_some(to, use_fiber.within(10us)); }) ==
            asio::error::timed_out);
      break;
    default: {  // by a stop of its fiber
      auto reader = vigil::spawn([&] { s.async_read_some(to, use_fiber); });
      vigil::this_fiber::yield();
      reader.request_stop();
      CHECK_THROWS_AS(reader.join(), vigil::cancelled);
    }
  }
  reset(s);
}

struct tcp_pair {
  tcp_pair() : near(vigil::io::io_context()), far(vigil::io::io_context()) {
    tcp::acceptor a(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
    near.next_layer().connect(a.local_endpoint());
    a.accept(far);
  }

  tcp_stream near;
  tcp::socket far;
};

error_code read_one(tcp_stream& s) {
  char byte = 0;
  error_code error;
  s.read_some(asio::buffer(&byte, 1), error);
  return error;
}

error_code write_until_error(tcp_stream& s) {
  static const std::string many(1 << 16, 'x');
  error_code error;
  while (!error)
    s.write_some(asio::buffer(many), error);
  return error;
}

bool is_gone(const error_code& e) {
  return e == asio::error::connection_reset || e == asio::error::broken_pipe;
}

}  // namespace

TEST_SUITE("io: connections come and go") {
  // Go: TestNetpollWaiters.
  TEST_CASE("thousands leave no descriptor, fiber, timer or byte behind") {
    for (const unsigned workers : {1U, 2U}) {
      in_runtime({.workers = {workers}}, [&] {
        tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
        const auto where = acceptor.local_endpoint();
        const auto stopping = vigil::with_cancel(vigil::background());
        vigil::io::idle_list idle(1h);
        std::atomic<int> ended{0};
        auto server = vigil::spawn([&] {
          vigil::io::serve(stopping.ctx, acceptor, [&](tcp::socket socket) {
            tcp_stream peer(std::move(socket));
            peer.set_idle_list(idle);
            std::array<char, 64> bytes;
            error_code error;
            while (!error) {
              const std::size_t n = peer.read_some(asio::buffer(bytes), error);
              if (!error) asio::write(peer, asio::buffer(bytes.data(), n), error);
            }
            ended.fetch_add(1);
          });
        });
        const auto come_and_go = [&](int all) {
          vigil::group visitors({.limit = 8});
          for (int i = 0; i < all; ++i)
            visitors.go([&, i] { visit(where, i); });
          visitors.wait();
          while (ended.load() < all)
            vigil::sleep_for(100us);
          while (vigil::stats().fibers_alive > 2)
            vigil::sleep_for(100us);
          ended.store(0);
        };
        come_and_go(200);  // fills the caches
        const long descriptors = open_descriptors();
        const auto settled = vigil::stats();
        const long before = bytes_in_use();
        come_and_go(connections() / 2);
        CHECK(open_descriptors() == descriptors);
        const auto after = vigil::stats();
        CHECK(after.fibers_alive == settled.fibers_alive);
        CHECK(after.timers_pending <= settled.timers_pending);
        CHECK(idle.size() == 0);
        CHECK(bytes_in_use() - before < 32 * 1024);
        stopping.cancel();
        server.join();
        CHECK(!vigil::detail::current_scheduler()->outside.any());
      });
    }
  }

  TEST_CASE("a runtime that has served leaves no descriptor") {
    const auto once = [] {
      in_runtime({.workers = {1, 2}}, [] {
        tcp_pair p;
        const auto reader = vigil::spawn([&] { read_one(p.near); });
        vigil::this_fiber::yield();
      });
    };
    once();
    const long descriptors = open_descriptors();
    for (int i = 0; i < rounds(20); ++i)
      once();
    CHECK(open_descriptors() == descriptors);
  }

  TEST_CASE("a reset while reading, while writing, and while both wait") {
    in_runtime({.workers = {1, 2}}, [] {
      {
        tcp_pair p;
        auto reader = vigil::spawn([&] { return read_one(p.near); });
        vigil::sleep_for(200us);
        reset(p.far);
        CHECK(reader.join() == asio::error::connection_reset);
      }
      {
        tcp_pair p;
        auto writer = vigil::spawn([&] { return write_until_error(p.near); });
        vigil::sleep_for(200us);
        reset(p.far);
        CHECK(is_gone(writer.join()));
      }
      {
        tcp_pair p;
        auto reader = vigil::spawn([&] { return read_one(p.near); });
        auto writer = vigil::spawn([&] { return write_until_error(p.near); });
        vigil::sleep_for(200us);
        reset(p.far);
        // One of the two reports the error; the other sees the rest of the connection.
        const error_code read = reader.join();
        const error_code written = writer.join();
        CHECK((is_gone(read) || read == asio::error::eof));
        CHECK(is_gone(written));
      }
    });
  }

  TEST_CASE("a reset of an idle connection, seen by the next read or write") {
    in_runtime({.workers = {1, 2}}, [] {
      {
        tcp_pair p;
        reset(p.far);
        CHECK(read_one(p.near) == asio::error::connection_reset);
        CHECK(is_gone(write_until_error(p.near)));
        CHECK(read_one(p.near) == asio::error::eof);
      }
      {
        tcp_pair p;
        reset(p.far);
        CHECK(is_gone(write_until_error(p.near)));  // and no SIGPIPE
      }
      {  // TCP loses bytes that came before the reset; the error is reported
        tcp_pair p;
        asio::write(p.far, asio::buffer("x", 1));
        reset(p.far);
        const error_code first = read_one(p.near);
        CHECK((!first || first == asio::error::connection_reset));
      }
    });
  }

  TEST_CASE("a reset of a half-closed connection, on either side") {
    in_runtime({.workers = {1, 2}}, [] {
      {  // our side is closed
        tcp_pair p;
        p.near.next_layer().shutdown(tcp::socket::shutdown_send);
        auto reader = vigil::spawn([&] { return read_one(p.near); });
        vigil::sleep_for(200us);
        reset(p.far);
        CHECK(reader.join() == asio::error::connection_reset);
      }
      {  // the peer's side is closed
        tcp_pair p;
        p.far.shutdown(tcp::socket::shutdown_send);
        CHECK(read_one(p.near) == asio::error::eof);
        auto writer = vigil::spawn([&] { return write_until_error(p.near); });
        vigil::sleep_for(200us);
        reset(p.far);
        CHECK(is_gone(writer.join()));
      }
    });
  }

  TEST_CASE("a reset while connecting: refused, or gone before it was accepted") {
    in_runtime({.workers = {1, 2}}, [] {
      tcp::socket s(vigil::io::io_context());
      tcp::endpoint nobody;
      {
        tcp::acceptor a(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
        nobody = a.local_endpoint();
      }
      CHECK(error_of([&] { s.async_connect(nobody, use_fiber); }) ==
            asio::error::connection_refused);
      tcp_stream t(vigil::io::io_context());
      {
        tcp::acceptor a(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
        t.next_layer().async_connect(a.local_endpoint(), use_fiber);
      }  // the connection is still in the backlog
      CHECK(read_one(t) == asio::error::connection_reset);
    });
  }
}
