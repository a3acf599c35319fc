// Connects to the first of several addresses that accepts, with a limit for each of them.
//! [recipe]
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using vigil::io::use_fiber;

tcp::socket connect(const std::vector<tcp::endpoint>& addresses, vigil::clock::duration each) {
  boost::system::error_code error = asio::error::host_not_found;  // if there is no address
  for (const tcp::endpoint& address : addresses) {
    tcp::socket socket(vigil::io::io_context());
    socket.async_connect(address, asio::redirect_error(use_fiber.within(each), error));
    if (!error) return socket;
  }
  throw boost::system::system_error(error, "no address accepts");
}

int main() {
  return vigil::run([] {
    auto& context = vigil::io::io_context();
    const tcp::endpoint any(asio::ip::address_v4::loopback(), 0);
    tcp::socket deaf(context, any);  // has an address and does not listen
    tcp::acceptor server(context, any);
    const std::vector<tcp::endpoint> both = {deaf.local_endpoint(), server.local_endpoint()};

    const tcp::socket peer = connect(both, 2s);
    std::puts(peer.remote_endpoint() == both[1] ? "connected to the second" : "connected");
    try {
      connect({both[0]}, 2s);
    } catch (const boost::system::system_error& e) {
      std::puts(e.code() == asio::error::connection_refused ? "refused" : e.what());
    }
  });
}

//! [recipe]
