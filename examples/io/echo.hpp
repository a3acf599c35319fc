// The echo service, as shared by the server and the load client.
#pragma once

#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

namespace echo {

namespace asio = boost::asio;
using asio::ip::tcp;
using vigil::io::use_fiber;

// Sends back all bytes that come, until the peer is done or has been silent for a minute.
// Returns the number of bytes.
inline std::size_t serve_one(tcp::socket& peer) {
  using namespace std::chrono_literals;
  std::array<char, 4096> bytes;
  std::size_t all = 0;
  for (;;) {
    const auto [error, n] =
        peer.async_read_some(asio::buffer(bytes), asio::as_tuple(use_fiber.within(1min)));
    if (error) return all;
    const auto [failed, written] = asio::async_write(
        peer, asio::buffer(bytes.data(), n), asio::as_tuple(use_fiber.within(10s)));
    if (failed) return all;
    all += written;
  }
}

// Accepts until the runtime shuts down, or the calling fiber is stopped. Calls `served`
// for each connection that has ended.
template <class Served>
void serve(tcp::acceptor& acceptor, Served served) try {
  using namespace std::chrono_literals;
  const vigil::context stopping = vigil::background();
  for (;;) {
    auto [error, peer] = acceptor.async_accept(asio::as_tuple(use_fiber.under(stopping)));
    if (error) {
      vigil::sleep_for(50ms, stopping);  // most likely out of descriptors: some may come back
      continue;
    }
    vigil::go([peer = std::move(peer), served]() mutable { served(serve_one(peer)); });
  }
} catch (const vigil::cancelled&) {
  // The runtime shuts down: the caller can end by itself.
}

}  // namespace echo
