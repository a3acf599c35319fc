// What the tests of io::serve share.
#pragma once

#include "io/io_test.hpp"

#include <vigil/io/use_fiber.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>

namespace vigil::io_testing {

// Reads a byte; false at the end of the stream.
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

// Sends each byte back until the peer closes.
inline constexpr auto echo = [](auto peer) {
  while (read_byte(peer))
    write_byte(peer);
};

}  // namespace vigil::io_testing
