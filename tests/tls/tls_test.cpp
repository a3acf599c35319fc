// tls_stream: handshakes, endings, and two fibers on one connection; the connection tests
// of Go's nettest, and those of deadlines, over TLS.
#include "io/deadline_tests.hpp"
#include "io/nettest.hpp"
#include "tls/tls_transports.hpp"

#include <string>
#include <vector>

#include <openssl/ssl.h>

namespace vigil::io_testing {
namespace {

const error_code truncated = asio::ssl::error::stream_truncated;

template <class F>
void over_both(F body) {
  over_virtual_tls::run(body);
  over_tls::run(body);
}

// The results of both ends' handshakes.
struct handshakes {
  error_code server;
  error_code client;
};

handshakes shake(tls_over_tcp& c) {
  handshakes how;
  auto server = spawn([&] { c.near.handshake(stream_base::server, how.server); });
  c.far.handshake(stream_base::client, how.client);
  server.join();
  return how;
}

template <class Stream>
void write_all(Stream& s, const std::string& text) {
  asio::write(s, asio::buffer(text));
}

template <class Stream>
std::string read_exactly(Stream& s, std::size_t n) {
  std::string text(n, ' ');
  asio::read(s, asio::buffer(text));
  return text;
}

// A connection that passes at most `capacity` bytes at a time.
connection<timed_memory_stream> narrow_connection(std::size_t capacity) {
  auto [one, other] = io::memory_pipe(capacity);
  return {timed_memory_stream(std::move(one)), timed_memory_stream(std::move(other))};
}

}  // namespace

TEST_SUITE_BEGIN("nettest");
VIGIL_NETTEST(over_tls, over_virtual_tls);
TEST_SUITE_END();

TEST_SUITE_BEGIN("tls_stream: deadlines");
VIGIL_DEADLINE_TESTS(over_tls, over_virtual_tls);
VIGIL_VIRTUAL_DEADLINE_TESTS(over_virtual_tls);
TEST_SUITE_END();

TEST_SUITE("tls_stream: handshake") {
  TEST_CASE("one that waits for a silent peer ends at its deadline, and may go on later") {
    for_each_seed(5, [] {
      tls_in_memory c(memory_connection());
      const auto due = clock::now() + 10s;
      c.far.set_deadline(due);
      error_code error;
      c.far.handshake(stream_base::client, error);
      CHECK(error == timed_out);
      CHECK(clock::now() == due);
      c.far.handshake(stream_base::client, error);
      CHECK(error == timed_out);
      c.far.set_deadline(no_deadline);
      c.handshake();
      write_all(c.near, "hello");
      CHECK(read_exactly(c.far, 5) == "hello");
    });
  }

  TEST_CASE("the certificate must have the requested name or address") {
    in_runtime({.workers = {1, 2}}, [] {
      for (const char* const name : {"localhost", "127.0.0.1"}) {
        tls_over_tcp c(tcp_connection());
        c.far.set_host(name);
        const handshakes how = shake(c);
        CHECK(!how.client);
        CHECK(!how.server);
      }
      for (const char* const name : {"example.org", "127.0.0.2"}) {
        tls_over_tcp c(tcp_connection());
        c.far.set_host(name);
        const handshakes how = shake(c);
        CHECK(is_of_tls(how.client));
        CHECK(is_of_tls(how.server));  // the alert that says so
      }
    });
  }

  TEST_CASE("a certificate that nobody vouches for is refused") {
    in_runtime({.workers = {1, 2}}, [] {
      example::tls_contexts stranger;
      auto [near, far] = tcp_connection();
      io::tls_stream<tcp::socket> server(contexts().server, std::move(near));
      io::tls_stream<tcp::socket> client(stranger.client, std::move(far));
      client.set_host("localhost");
      auto accepting = spawn([&] {
        error_code ignored;
        server.handshake(stream_base::server, ignored);
      });
      error_code error;
      client.handshake(stream_base::client, error);
      CHECK(is_of_tls(error));
      accepting.join();
    });
  }

  TEST_CASE("a peer that does not speak TLS, and one that leaves, are errors") {
    in_runtime({.workers = {1, 2}}, [] {
      tls_over_tcp c(tcp_connection());
      c.near.next_layer().write_some(asio::buffer("GET / HTTP/1.1\r\n\r\n", 18));
      error_code error;
      c.far.handshake(stream_base::client, error);
      CHECK(is_of_tls(error));
      tls_over_tcp d(tcp_connection());
      d.near.close();
      d.far.handshake(stream_base::client, error);
      CHECK((error == truncated || error == asio::error::connection_reset ||
             error == asio::error::broken_pipe));
    });
  }

  TEST_CASE("before it nothing can be written or read, after it again is nothing") {
    for_each_seed(1, [] {
      tls_in_memory c(memory_connection());
      error_code error;
      CHECK(c.near.write_some(asio::buffer("x", 1), error) == 0);
      CHECK(error);
      CHECK(read_one(c.near));
      c.handshake();
      c.handshake();
      write_all(c.far, "x");
      CHECK(!read_one(c.near));
    });
  }
}

TEST_SUITE("tls_stream: endings") {
  TEST_CASE("shutdown is the peer's eof; bytes that it still sends can be read") {
    over_both([](auto& near, auto& far) {
      write_all(near, "last words");
      near.shutdown();
      near.shutdown();
      error_code error;
      near.write_some(asio::buffer("x", 1), error);
      CHECK(error == asio::error::shut_down);
      CHECK(read_exactly(far, 10) == "last words");
      CHECK(read_one(far) == asio::error::eof);
      CHECK(read_one(far) == asio::error::eof);
      write_all(far, "and mine");
      far.shutdown();
      CHECK(read_exactly(near, 8) == "and mine");
      CHECK(read_one(near) == asio::error::eof);
    });
  }

  TEST_CASE("a connection that is closed without it is reported as cut off") {
    over_both([](auto& near, auto& far) {
      write_all(near, "last words");
      near.close();
      CHECK(read_exactly(far, 10) == "last words");
      CHECK(read_one(far) == truncated);
    });
  }

  TEST_CASE("a shutdown waits for its deadline") {
    for_each_seed(5, [] {
      tls_in_memory c(narrow_connection(100));  // a record does not fit
      c.handshake();
      error_code error;
      c.near.set_write_deadline(long_ago);
      c.near.shutdown(error);
      CHECK(error == timed_out);
      c.near.set_write_deadline(no_deadline);
      auto writer = spawn([&] { write_until_error(c.near); });
      sleep_for(1s);
      const auto due = clock::now() + 1s;
      c.near.set_write_deadline(due);
      c.near.shutdown(error);
      CHECK(error == timed_out);
      CHECK(clock::now() == due);
      writer.join();
    });
  }

  TEST_CASE("a shutdown that was cut off fails each time; one that was sent never does") {
    for_each_seed(5, [] {
      tls_in_memory c(narrow_connection(10));  // the goodbye does not fit
      c.handshake();
      error_code error;
      c.near.set_write_deadline(clock::now() + 1s);
      c.near.shutdown(error);
      CHECK(error == timed_out);
      c.near.set_write_deadline(no_deadline);
      for (int i = 0; i < 3; ++i) {
        c.near.shutdown(error);
        CHECK(error == timed_out);
      }
      c.near.close();
      CHECK(read_one(c.far) == truncated);
    });
    for_each_seed(5, [] {
      tls_in_memory c(narrow_connection(10));
      c.handshake();
      auto cut = spawn([&] { c.near.shutdown(); });
      sleep_for(1s);
      cut.request_stop();
      CHECK_THROWS_AS(cut.join(), cancelled);
      error_code error;
      c.near.shutdown(error);
      CHECK(error == asio::error::operation_aborted);
    });
    for_each_seed(5, [] {
      tls_in_memory c(memory_connection());
      c.handshake();
      c.near.shutdown();
      c.near.set_write_deadline(long_ago);
      error_code error;
      c.near.shutdown(error);
      CHECK_FALSE(error);
      CHECK(read_one(c.far) == asio::error::eof);
    });
  }

  // Go: crypto/tls: a write that timed out breaks the connection's writes.
  TEST_CASE("a write that a deadline cuts off ends writing for good, not reading") {
    over_virtual_tls::run([](auto& near, auto& far) {
      auto writer = spawn([&near] { return write_until_error(near); });
      sleep_for(1s);  // the pipe is full
      near.set_write_deadline(long_ago);
      CHECK(writer.join() == timed_out);
      near.set_write_deadline(no_deadline);
      auto sink = discard(far);
      error_code error;
      for (int i = 0; i < 3; ++i) {
        CHECK(near.write_some(asio::buffer("x", 1), error) == 0);
        CHECK(error == timed_out);
      }
      near.shutdown(error);
      CHECK(error == timed_out);
      write_all(far, "still there");
      CHECK(read_exactly(near, 11) == "still there");
      near.close();
      sink.join();
    });
  }

  // Go: crypto/tls: a write that timed out breaks the connection's writes.
  TEST_CASE("so does a write whose fiber is stopped") {
    over_virtual_tls::run([](auto& near, auto& far) {
      auto writer = spawn([&near] { write_until_error(near); });
      sleep_for(1s);
      writer.request_stop();
      CHECK_THROWS_AS(writer.join(), cancelled);
      error_code error;
      near.write_some(asio::buffer("x", 1), error);
      CHECK(error == asio::error::operation_aborted);
      write_all(far, "x");
      CHECK(!read_one(near));
    });
  }

  TEST_CASE("an idle time ends a read for that call, and writing for good") {
    for_each_seed(5, [] {
      io::idle_list idle(10s);
      tls_in_memory c(narrow_connection(100));
      c.near.set_idle_list(idle);
      c.handshake();
      auto start = clock::now();
      CHECK(read_one(c.near) == timed_out);
      CHECK(since(start) == 10s);
      write_all(c.far, "x");
      CHECK(!read_one(c.near));
      start = clock::now();
      CHECK(write_until_error(c.near) == timed_out);
      CHECK(since(start) == 10s);
      error_code error;
      auto sink = discard(c.far);
      c.near.write_some(asio::buffer("x", 1), error);
      CHECK(error == timed_out);
    });
  }

  TEST_CASE("a read that timed out has lost nothing, however much of a record had come") {
    for_each_seed(20, [](std::uint64_t seed) {
      tls_in_memory c(narrow_connection(7));  // a record comes in many parts
      c.handshake();
      const std::string sent(5000, 'x');
      auto writer = spawn([&] { write_all(c.near, sent); });
      std::string got;
      seeded dice(seed);
      int timeouts = 0;
      while (got.size() < sent.size()) {
        block bytes;
        error_code error;
        c.far.set_read_deadline(no_deadline);
        auto later = spawn([&, turns = dice.below(40)] {
          for (std::uint64_t i = 0; i < turns; ++i)
            this_fiber::yield();
          c.far.set_read_deadline(long_ago);
        });
        const std::size_t n = c.far.read_some(asio::buffer(bytes), error);
        later.join();
        if (error) {
          REQUIRE(error == timed_out);
          ++timeouts;
        }
        got.append(bytes.data(), n);
      }
      CHECK(got == sent);
      CHECK(timeouts > 0);
      writer.join();
    });
  }
}

TEST_SUITE("tls_stream: two fibers, one connection") {
  TEST_CASE("both directions at once, on several workers") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      tls_over_tcp c(tcp_connection());
      c.handshake();
      std::string all(static_cast<std::size_t>(rounds(1 << 20)), ' ');
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<char>(i * 7 % 251);
      const auto send = [&all](auto& s) { return spawn([&] { write_all(s, all); }); };
      const auto receive = [&all](auto& s) {
        return spawn([&] { CHECK(read_exactly(s, all.size()) == all); });
      };
      auto a = send(c.near);
      auto b = send(c.far);
      auto d = receive(c.near);
      auto e = receive(c.far);
      a.join();
      b.join();
      d.join();
      e.join();
    });
  }

  TEST_CASE("new keys are asked for in the middle, and given") {
    over_both([](auto& near, auto& far) {
      for (int i = 0; i < 3; ++i) {
        REQUIRE(SSL_key_update(far.native_handle(), SSL_KEY_UPDATE_REQUESTED) == 1);
        write_all(far, "new keys");
        CHECK(read_exactly(near, 8) == "new keys");
        write_all(near, "mine too");
        CHECK(read_exactly(far, 8) == "mine too");
      }
    });
  }

  TEST_CASE("the previous version of TLS does all this, too") {
    for_each_seed(5, [] {
      tls_in_memory c(memory_connection());
      REQUIRE(SSL_set_max_proto_version(c.near.native_handle(), TLS1_2_VERSION) == 1);
      c.handshake();
      CHECK(std::string(SSL_get_version(c.far.native_handle())) == "TLSv1.2");
      auto other = echo(c.far);
      round_trip(c.near);
      c.near.shutdown();
      other.join();
      c.far.shutdown();
      CHECK(read_one(c.near) == asio::error::eof);
    });
  }

  TEST_CASE("small buffers share a record, large ones are cut into several") {
    over_both([](auto& near, auto& far) {
      const std::string head = "head ";
      const std::string body = "body";
      const std::array<asio::const_buffer, 3> parts{
          asio::buffer(head), asio::const_buffer(), asio::buffer(body)};
      CHECK(near.write_some(parts) == 9);
      std::string text(20, ' ');
      CHECK(far.read_some(asio::buffer(text)) == 9);
      CHECK(text.substr(0, 9) == "head body");
      CHECK(near.write_some(asio::const_buffer()) == 0);
      const std::string large(40'000, 'x');
      CHECK(near.write_some(asio::buffer(large)) == 16 * 1024);
      CHECK(read_exactly(far, 16 * 1024) == large.substr(0, 16 * 1024));
    });
  }
}

}  // namespace vigil::io_testing
