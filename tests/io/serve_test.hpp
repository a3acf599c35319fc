// Includes, names and helpers that the tests of io::serve share.
#pragma once

#include "io/io_test.hpp"

#include <vigil/context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/time.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>

namespace vigil::io_testing {

using vigil::io::memory_acceptor;
using vigil::io::memory_stream;
using vigil::io::serve;

// Reads a byte; returns false at the end of the stream.
template <class Stream>
bool read_byte(Stream& s, const io::fiber_token& token = {}) {
  char byte = 0;
  const auto [error, n] = s.async_read_some(asio::buffer(&byte, 1), asio::as_tuple(token));
  return !error && n == 1;
}

template <class Stream>
void write_byte(Stream& s) {
  s.async_write_some(asio::buffer("x", 1), io::use_fiber);
}

// A handler that takes `length` for each byte. Between two bytes it ends with `stopping`.
inline auto answers_after(std::chrono::nanoseconds length, const context& stopping = background()) {
  return [length, stopping](auto peer, const context& ctx) {
    while (read_byte(peer, io::use_fiber.under(stopping))) {
      sleep_for(length, ctx);
      write_byte(peer);
    }
  };
}

// Sends each byte back until the peer closes.
inline constexpr auto echo_bytes = [](auto peer) {
  while (read_byte(peer))
    write_byte(peer);
};

}  // namespace vigil::io_testing
