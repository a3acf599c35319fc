// Two ends of a TCP connection within the program, for the works of `together` and
// `scaling`.
#pragma once

#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <utility>

#include <boost/asio/ip/tcp.hpp>

namespace bench {

// Small messages are sent at once. Called on a fiber.
inline std::pair<boost::asio::ip::tcp::socket, boost::asio::ip::tcp::socket> connected() {
  using boost::asio::ip::tcp;
  tcp::acceptor acceptor(vigil::io::io_context(), {boost::asio::ip::address_v4::loopback(), 0});
  tcp::socket near(vigil::io::io_context());
  tcp::socket far(vigil::io::io_context());
  auto accepted = vigil::spawn([&] { acceptor.async_accept(far, vigil::io::use_fiber); });
  near.async_connect(acceptor.local_endpoint(), vigil::io::use_fiber);
  accepted.join();
  near.set_option(tcp::no_delay(true));
  far.set_option(tcp::no_delay(true));
  return {std::move(near), std::move(far)};
}

}  // namespace bench
