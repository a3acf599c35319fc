// A shared object with an Asio of its own, from the headers.
#include <chrono>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace asio = boost::asio;

extern "C" [[gnu::visibility("default")]] const void* address_in_second() {
  return reinterpret_cast<const void*>(&asio::detail::socket_ops::bind);
}

// Returns the number of handlers that have run without an error: 2.
extern "C" [[gnu::visibility("default")]] int work_in_second() {
  asio::io_context context;
  int ran = 0;
  asio::steady_timer soon(context, std::chrono::milliseconds(1));
  soon.async_wait([&](const boost::system::error_code& e) { ran += e ? 0 : 1; });
  asio::local::stream_protocol::socket a(context);
  asio::local::stream_protocol::socket b(context);
  asio::local::connect_pair(a, b);
  char got = 0;
  a.async_read_some(asio::buffer(&got, 1), [&](const boost::system::error_code& e, std::size_t) {
    ran += e || got != 'x' ? 0 : 1;
  });
  asio::write(b, asio::buffer("x", 1));
  context.run();
  return ran;
}
