// The rows of Go's net/timeout_test.go that are not about a stream: connecting,
// accepting, datagrams.
#include "io/transports.hpp"

#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/udp.hpp>

using namespace vigil::io_testing;

namespace {

using udp = asio::ip::udp;

tcp::endpoint any_port() {
  return {asio::ip::address_v4::loopback(), 0};
}

}  // namespace

TEST_SUITE("net timeouts") {
  // Go: TestDialTimeout.
  TEST_CASE("connecting to a peer that does not accept ends at its deadline") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      tcp::acceptor full(c);
      full.open(tcp::v4());
      full.bind(any_port());
      full.listen(0);
      // As many as its queue takes.
      std::vector<tcp::socket> queued;
      // One connect may time out because this thread did not run; several in a row do
      // not.
      int timeouts = 0;
      while (timeouts < 4) {
        REQUIRE(queued.size() < 100);
        tcp::socket& s = queued.emplace_back(c);
        error_code error;
        const auto start = clock::now();
        s.async_connect(full.local_endpoint(), asio::redirect_error(use_fiber.within(20ms), error));
        timeouts = error ? timeouts + 1 : 0;
        if (!error) continue;
        CHECK(error == timed_out);
        CHECK(since(start) >= 20ms);
      }
      // The kernel goes on with it, so the socket is closed before it is tried again.
      tcp::acceptor free(c, any_port());
      const tcp::endpoint elsewhere = free.local_endpoint();
      tcp::socket& late = queued.back();
      CHECK(error_of([&] { late.async_connect(elsewhere, use_fiber); }) ==
            asio::error::already_started);
      late.close();
      late.async_connect(elsewhere, use_fiber);
      CHECK(late.remote_endpoint() == elsewhere);
      // The connect of a range closes it itself.
      tcp::socket& other = queued[queued.size() - 2];
      asio::async_connect(other, std::vector{elsewhere}, use_fiber);
      CHECK(other.remote_endpoint() == elsewhere);
      const auto connect_error = [&](const vigil::io::fiber_token& token) {
        tcp::socket s(c);
        return error_of([&] { s.async_connect(full.local_endpoint(), token); });
      };
      CHECK(connect_error(use_fiber.within(-1s)) == timed_out);
      CHECK(connect_error(use_fiber.until(long_ago)) == timed_out);
      const auto start = clock::now();
      CHECK(connect_error(use_fiber.until(start + 1ms)) == timed_out);
      CHECK(since(start) >= 1ms);
    });
  }

  // Go: TestDialTimeoutMaxDuration.
  TEST_CASE("the longest timeout does not wrap into the past") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      tcp::acceptor a(c, any_port());
      tcp::socket s(c);
      CHECK_NOTHROW(s.async_connect(a.local_endpoint(), use_fiber.within(clock::duration::max())));
    });
  }

  // Go: TestAcceptTimeout, ...MustReturn, ...MustNotReturn.
  TEST_CASE("accepting ends at its deadline, and then goes on as before") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      tcp::acceptor a(c, any_port());
      const auto accept_error = [&](const vigil::io::fiber_token& token) {
        return error_of([&] { a.async_accept(token); });
      };
      CHECK(accept_error(use_fiber.within(-1s)) == timed_out);
      const auto start = clock::now();
      CHECK(accept_error(use_fiber.within(3ms)) == timed_out);
      CHECK(since(start) >= 3ms);
      auto acceptor = vigil::spawn([&] { return accept_error({}); });
      tcp::socket s(c);
      s.async_connect(a.local_endpoint(), use_fiber);
      CHECK(!acceptor.join());
      // A connection that is already there counts, though the deadline has passed.
      tcp::socket t(c);
      t.async_connect(a.local_endpoint(), use_fiber);
      CHECK(!accept_error(use_fiber.within(0s)));
    });
  }

  // Go: TestReadFromTimeout, TestWriteToTimeout.
  TEST_CASE("receiving a datagram, from anybody, ends at its deadline") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      const udp::endpoint anywhere(asio::ip::address_v4::loopback(), 0);
      udp::socket near(c, anywhere);
      udp::socket far(c, anywhere);
      udp::endpoint from;
      char byte = 0;
      const auto room = asio::buffer(&byte, 1);
      const auto receive_error = [&](const vigil::io::fiber_token& token) {
        return error_of([&] { near.async_receive_from(room, from, token); });
      };
      CHECK(receive_error(use_fiber.within(-1s)) == timed_out);
      const auto until = clock::now() + 3ms;
      CHECK(receive_error(use_fiber.until(until)) == timed_out);
      CHECK(clock::now() >= until);
      CHECK(byte == 0);
      // There is room: the datagram is sent, though the deadline has passed.
      CHECK(far.async_send_to(asio::buffer("x", 1), near.local_endpoint(), use_fiber.within(0s)) ==
            1);
      CHECK(!receive_error(use_fiber.within(1h)));
      CHECK(byte == 'x');
      CHECK(from == far.local_endpoint());
    });
  }
}
