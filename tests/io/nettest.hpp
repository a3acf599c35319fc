// The connection tests of Go's nettest (golang.org/x/net/nettest/conntest.go), once for
// all transports: each is a doctest template over a transport of transports.hpp, to be
// invoked with
//
//   VIGIL_NETTEST(over_tcp, over_unix)
//
// They check more than Go's: no deadline is early; on virtual time none is late, either;
// a buffer is left alone after a timeout.
#pragma once

#include "io/transports.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace vigil::io_testing {

using block = std::array<char, 1024>;

// Copies until an error, and returns it.
template <class From, class To>
error_code copy_in_chunks(From& from, To& to) {
  block bytes;
  error_code error;
  while (!error) {
    const std::size_t n = from.read_some(asio::buffer(bytes), error);
    if (!error) asio::write(to, asio::buffer(bytes, n), error);
  }
  return error;
}

template <class Stream>
auto echo(Stream& s) {
  return spawn([&s] { copy_in_chunks(s, s); });
}

template <class Stream>
auto discard(Stream& s) {
  return spawn([&s] {
    while (!read_one(s)) {
    }
  });
}

template <class Stream>
auto pump(Stream& s) {
  return spawn([&s] { write_until_error(s); });
}

// Runs over a connection whose other end echoes.
template <class Stream>
void round_trip(Stream& s) {
  s.set_deadline(no_deadline);
  const std::string sent = "Hello, world!";
  std::string got(sent.size(), ' ');
  asio::write(s, asio::buffer(sent));
  asio::read(s, asio::buffer(got));
  CHECK(got == sent);
}

// Reads away the bytes that are still on their way back.
template <class Stream>
void resync(Stream& s) {
  s.set_deadline(no_deadline);
  auto writer = spawn([&s] { asio::write(s, asio::buffer("\n", 1)); });
  block bytes{};
  for (std::size_t n = 1; bytes[n - 1] != '\n';)
    n = s.read_some(asio::buffer(bytes));
  writer.join();
}

template <class Transport>
void check_reached(clock::time_point deadline) {
  CHECK(clock::now() >= deadline);
  if (Transport::exact) CHECK(clock::now() == deadline);
}

template <class Stream>
error_code read_block(Stream& s, std::size_t& n) {
  block bytes;
  error_code error;
  n = s.read_some(asio::buffer(bytes), error);
  return error;
}

// Numbers go back and forth, each one greater than the last.
template <class Transport, class Stream>
void play_ping_pong(Stream& s) {
  constexpr std::uint64_t last = 1000;
  std::uint64_t previous = 0;
  for (;;) {
    std::uint64_t number = 0;
    error_code error;
    asio::read(s, asio::buffer(&number, sizeof number), error);
    if (error == asio::error::eof) break;
    REQUIRE(!error);
    REQUIRE((previous == 0 || previous + 2 == number));
    previous = number;
    if (number == last) break;
    ++number;
    asio::write(s, asio::buffer(&number, sizeof number));
  }
  Transport::finish(s);
}

// Go: nettest BasicIO.
TEST_CASE_TEMPLATE_DEFINE("BasicIO: one end reads the other's bytes, to the end",
                          Transport,
                          nettest_basic_io) {
  Transport::run([](auto& near, auto& far) {
    std::vector<char> sent(static_cast<std::size_t>(rounds(1 << 20)));
    seeded dice(1);
    for (char& c : sent)
      c = static_cast<char>(dice.below(256));
    auto writer = spawn([&] {
      for (std::size_t i = 0; i < sent.size(); i += sizeof(block))
        asio::write(near, asio::buffer(sent.data() + i, std::min(sizeof(block), sent.size() - i)));
      Transport::finish(near);
    });
    std::vector<char> got;
    error_code error;
    while (!error) {
      block bytes;
      const std::size_t n = far.read_some(asio::buffer(bytes), error);
      got.insert(got.end(), bytes.data(), bytes.data() + n);
    }
    CHECK(error == asio::error::eof);
    CHECK(got == sent);
    writer.join();
    far.close();
  });
}

// Go: nettest PingPong.
TEST_CASE_TEMPLATE_DEFINE("PingPong: a thousand numbers, each in answer to the one before",
                          Transport,
                          nettest_ping_pong) {
  Transport::run([](auto& near, auto& far) {
    auto one = spawn([&near] { play_ping_pong<Transport>(near); });
    auto other = spawn([&far] { play_ping_pong<Transport>(far); });
    const std::uint64_t first = 0;
    asio::write(near, asio::buffer(&first, sizeof first));
    one.join();
    other.join();
  });
}

// A hundred rounds on each of ten fibers.
template <class Round>
void ten_at_once(Round round) {
  std::vector<fiber<>> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back(spawn([&round] {
      for (int k = 0; k < rounds(100); ++k)
        round();
    }));
  }
  for (auto& f : all)
    f.join();
}

// Go: nettest RacyRead, RacyWrite.
TEST_CASE_TEMPLATE_DEFINE("RacyRead: ten readers that move the deadline; buffers are theirs again",
                          Transport,
                          nettest_racy_read) {
  Transport::run([](auto& near, auto& far) {
    auto source = pump(far);
    near.set_read_deadline(clock::now() + 1ms);
    ten_at_once([&near] {
      block bytes;
      bytes.fill('-');
      error_code error;
      const std::size_t n = near.read_some(asio::buffer(bytes), error);
      bytes.fill('+');
      if (!error) return;
      REQUIRE(error == timed_out);
      REQUIRE(n == 0);
      near.set_read_deadline(clock::now() + 1ms);
      this_fiber::yield();
      REQUIRE(std::ranges::count(bytes, '+') == sizeof bytes);
    });
  });
}

// Go: nettest RacyRead, RacyWrite.
TEST_CASE_TEMPLATE_DEFINE("RacyWrite: ten writers that move the deadline",
                          Transport,
                          nettest_racy_write) {
  Transport::run([](auto& near, auto& far) {
    auto sink = discard(far);
    near.set_write_deadline(clock::now() + 1ms);
    ten_at_once([&near] {
      const block bytes{};
      error_code error;
      near.write_some(asio::buffer(bytes), error);
      if (!error) return;
      REQUIRE(error == timed_out);
      near.set_write_deadline(clock::now() + 1ms);
    });
  });
}

// Go: nettest ReadTimeout, WriteTimeout.
TEST_CASE_TEMPLATE_DEFINE("ReadTimeout: a past read deadline ends reads and lets writes be",
                          Transport,
                          nettest_read_timeout) {
  Transport::run([](auto& near, auto& far) {
    auto sink = discard(far);
    near.set_read_deadline(long_ago);
    std::size_t n = 1;
    CHECK(read_block(near, n) == timed_out);
    CHECK(n == 0);
    CHECK(near.write_some(asio::buffer(block{})) > 0);
  });
}

// Go: nettest ReadTimeout, WriteTimeout.
TEST_CASE_TEMPLATE_DEFINE("WriteTimeout: a past write deadline ends writes and lets reads be",
                          Transport,
                          nettest_write_timeout) {
  Transport::run([](auto& near, auto& far) {
    auto source = pump(far);
    near.set_write_deadline(long_ago);
    CHECK(write_until_error(near) == timed_out);
    std::size_t n = 0;
    CHECK(!read_block(near, n));
    CHECK(n > 0);
  });
}

// Go: nettest PastTimeout.
TEST_CASE_TEMPLATE_DEFINE("PastTimeout: no byte is moved, and afterwards all is as before",
                          Transport,
                          nettest_past_timeout) {
  Transport::run([](auto& near, auto& far) {
    auto other = echo(far);
    round_trip(near);
    const auto start = clock::now();
    near.set_deadline(long_ago);
    error_code error;
    CHECK(near.write_some(asio::buffer(block{}), error) == 0);
    CHECK(error == timed_out);
    std::size_t n = 1;
    CHECK(read_block(near, n) == timed_out);
    CHECK(n == 0);
    if (Transport::exact) CHECK(since(start) == 0s);
    round_trip(near);
  });
}

// Go: nettest PresentTimeout.
TEST_CASE_TEMPLATE_DEFINE("PresentTimeout: a deadline moved to the past ends the waits",
                          Transport,
                          nettest_present_timeout) {
  Transport::run([](auto& near, auto&) {
    const auto due = clock::now() + Transport::pause;
    auto setter = spawn([&] {
      sleep_until(due);
      near.set_deadline(long_ago);
    });
    auto reader = spawn([&] {
      std::size_t n = 1;
      CHECK(read_block(near, n) == timed_out);
      CHECK(n == 0);
      check_reached<Transport>(due);
    });
    CHECK(write_until_error(near) == timed_out);
    check_reached<Transport>(due);
    reader.join();
    setter.join();
  });
}

// Go: nettest FutureTimeout.
TEST_CASE_TEMPLATE_DEFINE("FutureTimeout: reader and writer end at it, and can go on afterwards",
                          Transport,
                          nettest_future_timeout) {
  Transport::run([](auto& near, auto& far) {
    const auto due = clock::now() + Transport::pause;
    near.set_deadline(due);
    auto reader = spawn([&] {
      std::size_t n = 1;
      CHECK(read_block(near, n) == timed_out);
      CHECK(n == 0);
      check_reached<Transport>(due);
    });
    CHECK(write_until_error(near) == timed_out);
    check_reached<Transport>(due);
    reader.join();
    if constexpr (Transport::outlives_write_timeouts) {
      auto other = echo(far);
      resync(near);
      round_trip(near);
    } else {
      near.set_deadline(no_deadline);
      asio::write(far, asio::buffer("x", 1));
      CHECK(!read_one(near));
    }
  });
}

// Go: nettest CloseTimeout.
TEST_CASE_TEMPLATE_DEFINE("CloseTimeout: close ends the waits, and not with a timeout",
                          Transport,
                          nettest_close_timeout) {
  Transport::run([](auto& near, auto& far) {
    auto other = echo(far);
    near.set_deadline(no_deadline);
    const auto due = clock::now() + Transport::pause;
    auto closer = spawn([&] {
      sleep_until(due);
      near.close();
    });
    auto reader = spawn([&] {
      error_code error;
      while (!error)
        error = read_one(near);
      CHECK(error != timed_out);
      check_reached<Transport>(due);
    });
    error_code error;
    while (!error) {
      near.write_some(asio::buffer(block{}), error);
      sleep_for(100us);  // so that virtual time goes on
    }
    CHECK(error != timed_out);
    reader.join();
    closer.join();
  });
}

// Go: nettest ConcurrentMethods.
TEST_CASE_TEMPLATE_DEFINE("ConcurrentMethods: every call beside every other",
                          Transport,
                          nettest_concurrent_methods) {
  Transport::run([](auto& near, auto& far) {
    auto other = echo(far);
    std::vector<fiber<>> callers;
    for (int i = 0; i < rounds(100); ++i) {
      callers.push_back(spawn([&] {
        std::size_t n = 0;
        read_block(near, n);
      }));
      callers.push_back(spawn([&] {
        error_code error;
        near.write_some(asio::buffer(block{}), error);
      }));
      callers.push_back(spawn([&] { near.set_deadline(clock::now() + 10ms); }));
      callers.push_back(spawn([&] { near.set_read_deadline(long_ago); }));
      callers.push_back(spawn([&] { near.set_write_deadline(long_ago); }));
      callers.push_back(spawn([&] { static_cast<void>(near.get_executor()); }));
    }
    // Whichever came last ends all of them.
    for (auto& c : callers)
      c.join();
  });
}

#define VIGIL_NETTEST(...)                                         \
  TEST_CASE_TEMPLATE_INVOKE(nettest_basic_io, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(nettest_ping_pong, __VA_ARGS__);       \
  TEST_CASE_TEMPLATE_INVOKE(nettest_racy_read, __VA_ARGS__);       \
  TEST_CASE_TEMPLATE_INVOKE(nettest_racy_write, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(nettest_read_timeout, __VA_ARGS__);    \
  TEST_CASE_TEMPLATE_INVOKE(nettest_write_timeout, __VA_ARGS__);   \
  TEST_CASE_TEMPLATE_INVOKE(nettest_past_timeout, __VA_ARGS__);    \
  TEST_CASE_TEMPLATE_INVOKE(nettest_present_timeout, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(nettest_future_timeout, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(nettest_close_timeout, __VA_ARGS__);   \
  TEST_CASE_TEMPLATE_INVOKE(nettest_concurrent_methods, __VA_ARGS__)

}  // namespace vigil::io_testing
