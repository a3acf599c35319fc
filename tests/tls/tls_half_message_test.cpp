// tls_stream while a message of TLS itself (a session ticket, new keys) has half arrived:
// nothing can be sealed until the rest is there.
#include "tls/tls_transports.hpp"

#include <string>
#include <utility>

#include <boost/asio/write.hpp>

#include <openssl/ssl.h>

namespace vigil::io_testing {
namespace {

using stream = io::tls_stream<io::memory_stream>;
using below = io::deadline_stream<io::memory_stream>;

// A wire between the two ends that forwards bytes on request.
struct wired {
  wired() : wired(io::memory_pipe(), io::memory_pipe()) {}

  wired(std::pair<io::memory_stream, io::memory_stream> of_server,
        std::pair<io::memory_stream, io::memory_stream> of_client)
      : server(contexts().server, std::move(of_server.first)),
        client(contexts().client, std::move(of_client.first)),
        at_server(std::move(of_server.second)),
        at_client(std::move(of_client.second)) {
    client.set_host("localhost");
    REQUIRE(SSL_set_max_send_fragment(server.native_handle(), 512) == 1);
    auto accepting = spawn([this] { server.handshake(stream_base::server); });
    auto there = spawn([this] { hand_on_all(at_client, at_server); });
    auto back = spawn([this] { hand_on_all(at_server, at_client); });
    client.handshake(stream_base::client);
    accepting.join();
    for (below* const end : {&at_server, &at_client})
      end->set_read_deadline(clock::now());
    there.join();
    back.join();
    for (below* const end : {&at_server, &at_client})
      end->set_read_deadline(no_deadline);
  }

  static void hand_on_all(below& from, below& to) {
    error_code error;
    while (!error)
      hand_on(from, to, 1 << 14, error);
  }

  static void hand_on(below& from, below& to, std::size_t at_most, error_code& error) {
    std::string part(at_most, ' ');
    part.resize(from.read_some(asio::buffer(part), error));
    if (!error) asio::write(to, asio::buffer(part), error);
  }

  // A session ticket of several records: the first of them reaches the client.
  void send_half() {
    SSL_SESSION* const session = SSL_get0_session(server.native_handle());
    const std::string large(1500, 'x');
    REQUIRE(SSL_SESSION_set1_ticket_appdata(session, large.data(), large.size()) == 1);
    REQUIRE(SSL_new_session_ticket(server.native_handle()) == 1);
    asio::write(server, asio::buffer("x", 1));
    error_code error;
    hand_on(at_server, at_client, 600, error);
    REQUIRE(!error);
  }

  void send_rest() {
    error_code error;
    hand_on(at_server, at_client, 1 << 14, error);
    REQUIRE(!error);
  }

  // Passes to the server everything that the client has sent.
  error_code heard(std::string& text) {
    error_code error;
    hand_on(at_client, at_server, 1 << 14, error);
    REQUIRE(!error);
    text.resize(100);
    text.resize(server.read_some(asio::buffer(text), error));
    return error;
  }

  stream server;
  stream client;
  below at_server;  // the wire's end at the server
  below at_client;
};

// The client reads the first record of the message, and no more.
void read_half(wired& w) {
  w.send_half();
  w.client.set_read_deadline(clock::now() + 1s);
  REQUIRE(tls_read_byte(w.client) == timed_out);
}

}  // namespace

TEST_SUITE("tls_stream: half of a message of TLS itself") {
  TEST_CASE("a write waits for the other half, which it reads by itself if nobody else does") {
    for_each_seed(3, [] {
      wired w;
      read_half(w);
      const auto due = clock::now() + 5s;
      auto later = spawn([&] {
        sleep_until(due);
        w.send_rest();
      });
      // The read deadline, which has passed, does not apply to the write.
      CHECK(w.client.write_some(asio::buffer("hello", 5)) == 5);
      CHECK(clock::now() == due);
      later.join();
      std::string text;
      CHECK(!w.heard(text));
      CHECK(text == "hello");
      w.client.set_read_deadline(no_deadline);
      CHECK(!tls_read_byte(w.client));  // the byte behind the message
    });
  }

  TEST_CASE("a write waits for the other half while another fiber reads, and so do several") {
    for_each_seed(20, [] {
      wired w;
      w.send_half();
      auto reader = spawn([&] {
        const error_code first = tls_read_byte(w.client);
        static_cast<void>(tls_read_byte(w.client));
        return first;
      });
      sleep_for(1s);
      const auto due = clock::now() + 5s;
      const auto writes = [&] { return w.client.write_some(asio::buffer("hello", 5)); };
      auto one = spawn(writes);
      auto other = spawn(writes);
      sleep_until(due);
      w.send_rest();
      CHECK(one.join() == 5);
      CHECK(other.join() == 5);
      CHECK(clock::now() == due);
      std::string text;
      CHECK(!w.heard(text));
      CHECK(text == "hello");
      w.client.set_read_deadline(clock::now());
      CHECK(!reader.join());
    });
  }

  TEST_CASE("a write that waits for the other half goes on with it when the reader has left") {
    for_each_seed(20, [] {
      wired w;
      w.send_half();
      w.client.set_read_deadline(clock::now() + 2s);
      auto reader = spawn([&] { return tls_read_byte(w.client); });
      sleep_for(1s);
      auto writer = spawn([&] { return w.client.write_some(asio::buffer("hello", 5)); });
      CHECK(reader.join() == timed_out);
      sleep_for(1s);
      w.send_rest();
      CHECK(writer.join() == 5);
    });
  }

  TEST_CASE("its deadline ends that wait, whether somebody reads or not, and breaks nothing") {
    for (const bool is_read : {false, true}) {
      for (const bool is_moved : {false, true}) {
        for_each_seed(3, [is_read, is_moved] {
          wired w;
          read_half(w);
          w.client.set_read_deadline(no_deadline);
          auto reader = spawn([&] { return is_read ? tls_read_byte(w.client) : error_code(); });
          sleep_for(1s);
          const auto due = clock::now() + 5s;
          w.client.set_write_deadline(is_moved ? due + 1h : due);
          auto mover = spawn([&] {
            sleep_until(due - 1s);
            if (is_moved) w.client.set_write_deadline(due);
          });
          error_code error;
          w.client.write_some(asio::buffer("hello", 5), error);
          CHECK(error == timed_out);
          CHECK(clock::now() == due);
          w.client.shutdown(error);
          CHECK(error == timed_out);
          mover.join();

          w.client.set_write_deadline(no_deadline);
          w.send_rest();
          CHECK(w.client.write_some(asio::buffer("again", 5)) == 5);
          std::string text;
          CHECK(!w.heard(text));
          CHECK(text == "again");
          CHECK(!reader.join());
        });
      }
    }
  }

  TEST_CASE("a stop and a close end that wait") {
    for (const bool is_read : {false, true}) {
      for (const bool is_closed : {false, true}) {
        for_each_seed(3, [is_read, is_closed] {
          wired w;
          read_half(w);
          w.client.set_read_deadline(no_deadline);
          auto reader = spawn([&] {
            if (is_read) static_cast<void>(tls_read_byte(w.client));
          });
          sleep_for(1s);
          error_code error;
          auto writer = spawn([&] { w.client.write_some(asio::buffer("hello", 5), error); });
          sleep_for(1s);
          if (is_closed) {
            w.client.close();
            writer.join();
            CHECK(error == asio::error::operation_aborted);
          } else {
            writer.request_stop();
            CHECK_THROWS_AS(writer.join(), cancelled);
            w.client.close();
          }
          reader.join();
        });
      }
    }
  }

  TEST_CASE("a write that reads something other than the other half alerts the other end") {
    for_each_seed(3, [] {
      wired w;
      read_half(w);
      w.at_client.write_some(asio::buffer(std::string(600, 'x')));  // the rest of its record
      error_code error;
      w.client.write_some(asio::buffer("hello", 5), error);
      CHECK(error.category() == asio::error::get_ssl_category());
      std::string text;
      CHECK(w.heard(text).message().find("alert") != std::string::npos);
    });
  }

  TEST_CASE("a shutdown waits for the other half, too") {
    for (const bool is_read : {false, true}) {
      for_each_seed(3, [is_read] {
        wired w;
        read_half(w);
        w.client.set_read_deadline(no_deadline);
        auto reader = spawn([&] { return is_read ? tls_read_byte(w.client) : error_code(); });
        sleep_for(1s);
        const auto due = clock::now() + 5s;
        auto later = spawn([&] {
          sleep_until(due);
          w.send_rest();
        });
        w.client.shutdown();
        CHECK(clock::now() == due);
        later.join();
        CHECK(!reader.join());
        std::string text;
        CHECK(w.heard(text) == asio::error::eof);
      });
    }
  }
}

}  // namespace vigil::io_testing
