// Two nets: the loopback on real time, streams in memory on virtual time.
#pragma once

#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/io/use_fiber.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/system_error.hpp>

namespace vigil::soak {

// Throws boost::system::system_error, as its functions do.
class loopback {
 public:
  using stream = boost::asio::ip::tcp::socket;

  stream connect() const {
    stream s(io::io_context());
    s.async_connect(where_, io::use_fiber);
    return s;
  }

  void close() {
    boost::system::error_code ignored;
    acceptor.close(ignored);
  }

  boost::asio::ip::tcp::acceptor acceptor{io::io_context(),
                                          {boost::asio::ip::address_v4::loopback(), 0}};

 private:
  const boost::asio::ip::tcp::endpoint where_ = acceptor.local_endpoint();
};

class memory_net {
 public:
  using stream = io::memory_stream;

  stream connect() { return acceptor.connect(); }

  void close() { acceptor.close(); }

  io::memory_acceptor acceptor;
};

// Calls serve(), and closes the net if that is refused: its clients would wait for ever.
template <class Net, class F>
void serve_or_close(Net& net, F serve) {
  try {
    serve();
  } catch (...) {
    net.close();
    throw;
  }
}

}  // namespace vigil::soak
