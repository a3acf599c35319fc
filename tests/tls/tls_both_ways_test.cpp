// tls_stream whose two ends both read and write all the time, through pipes that keep
// less than two of their records, while one end or both ask for new keys.
#include "tls/tls_transports.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <openssl/ssl.h>

namespace vigil::io_testing {
namespace {

using stream = io::tls_stream<io::memory_stream>;

connection<timed_memory_stream> narrow_connection() {
  auto [one, other] = io::memory_pipe(100);
  return {timed_memory_stream(std::move(one)), timed_memory_stream(std::move(other))};
}

// One end's part: it asks for keys and writes bytes, and reads up to the other's end.
struct part {
  int asks = 0;
  std::size_t bytes = 0;
  bool asks_first = true;
  std::chrono::milliseconds before_each_read{0};
};

struct outcome {
  std::size_t sent = 0;
  std::size_t received = 0;
  error_code write;
  error_code read;
};

void write_all(stream& s, const part& does, outcome& out) {
  const std::string bytes(does.bytes, 'x');
  if (!does.asks_first) out.sent += asio::write(s, asio::buffer(bytes), out.write);
  for (int i = 0; i < does.asks && !out.write; ++i)
    out.sent += ask_for_keys(s, out.write);
  if (does.asks_first && !out.write) out.sent += asio::write(s, asio::buffer(bytes), out.write);
  if (!out.write) s.shutdown(out.write);
}

void read_all(stream& s, const part& does, outcome& out) {
  std::string room(700, ' ');
  while (!out.read) {
    sleep_for(does.before_each_read);
    out.received += s.read_some(asio::buffer(room), out.read);
  }
}

// Each end has a fiber that writes and one that reads, and comes to its end.
void check_both_ways(const part& server, const part& client) {
  for_each_seed(is_short_form() ? 1 : 2, [&] {
    tls_in_memory c(narrow_connection());
    c.handshake();
    c.near.set_deadline(clock::now() + 1h);  // so late that only what hangs comes to it
    c.far.set_deadline(clock::now() + 1h);
    outcome near;
    outcome far;
    auto near_writes = spawn([&] { write_all(c.near, server, near); });
    auto far_writes = spawn([&] { write_all(c.far, client, far); });
    auto near_reads = spawn([&] { read_all(c.near, server, near); });
    auto far_reads = spawn([&] { read_all(c.far, client, far); });
    for (auto* const f : {&near_writes, &far_writes, &near_reads, &far_reads})
      f->join();
    for (const outcome& x : {near, far}) {
      CHECK(!x.write);
      CHECK(x.read == asio::error::eof);
    }
    CHECK(near.sent == server.bytes + static_cast<std::size_t>(server.asks));
    CHECK(far.sent == client.bytes + static_cast<std::size_t>(client.asks));
    CHECK(near.received == far.sent);
    CHECK(far.received == near.sent);
  });
}

// With so many the answers are more than 64 KiB.
constexpr int many = 2600;

}  // namespace

TEST_SUITE("tls_stream: both ends read and write") {
  TEST_CASE("one end asks for new keys while the other writes") {
    for (const auto pause : {0ms, 1ms}) {
      check_both_ways({.asks = many}, {.bytes = 20'000, .before_each_read = pause});
      check_both_ways({.asks = many, .before_each_read = pause}, {.bytes = 20'000});
    }
  }

  TEST_CASE("both ends ask for new keys and write") {
    for (const auto pause : {0ms, 1ms}) {
      const part asks_first{.asks = many, .bytes = 20'000, .before_each_read = pause};
      const part writes_first{.asks = many, .bytes = 20'000, .asks_first = false};
      check_both_ways(asks_first, asks_first);
      check_both_ways(writes_first, writes_first);
      check_both_ways(writes_first, asks_first);
    }
  }

  TEST_CASE("behind its goodbye an end answers no more, and reads on") {
    for_each_seed(3, [] {
      tls_in_memory c(narrow_connection());
      c.handshake();
      c.near.set_write_deadline(clock::now() + 1h);
      c.far.shutdown();
      CHECK(tls_read_byte(c.near) == asio::error::eof);
      for (int i = 0; i < many; ++i) {
        error_code error;
        ask_for_keys(c.near, error);
        REQUIRE(!error);
        REQUIRE(!tls_read_byte(c.far));
      }
      auto& below = c.near.next_layer();
      below.set_read_deadline(clock::now() + 1s);
      CHECK(read_one(below) == timed_out);  // nothing has come
    });
  }

  TEST_CASE("a goodbye that waits for room does not wait for the answers behind it") {
    for_each_seed(3, [] {
      tls_in_memory c(narrow_connection());
      c.handshake();
      asio::write(c.far, asio::buffer(std::string(70, 'x')));  // leaves room for half a goodbye
      auto parting = spawn([&] {
        c.far.set_write_deadline(clock::now() + 1h);
        error_code error;
        c.far.shutdown(error);
        return error;
      });
      sleep_for(1s);
      for (int i = 0; i < 10; ++i) {
        error_code error;
        ask_for_keys(c.near, error);
        REQUIRE(!error);
        REQUIRE(!tls_read_byte(c.far));
      }
      std::string got(100, ' ');
      error_code end;
      CHECK(asio::read(c.near, asio::buffer(got), end) == 70);
      CHECK(end == asio::error::eof);
      CHECK(!parting.join());
    });
  }
}

}  // namespace vigil::io_testing
