// A program with vigil-io, beside a shared object with an Asio of its own. With an
// argument it says only whether both have one Asio.
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>

extern "C" const void* address_in_second();
extern "C" int work_in_second();

namespace asio = boost::asio;

int main(int count, char**) {
  const void* const here = reinterpret_cast<const void*>(&asio::detail::socket_ops::bind);
  std::puts(address_in_second() == here ? "one Asio" : "two Asios");
  if (count > 1) return 0;
  return vigil::run([] {
    using vigil::io::use_fiber;
    auto& context = vigil::io::io_context();
    asio::local::stream_protocol::socket a(context);
    asio::local::stream_protocol::socket b(context);
    asio::local::connect_pair(a, b);
    auto reader = vigil::spawn([&] {
      char got = 0;
      return a.async_read_some(asio::buffer(&got, 1), use_fiber);
    });
    vigil::this_fiber::yield();  // the reader waits
    const int ran = work_in_second();
    asio::async_write(b, asio::buffer("x", 1), use_fiber);
    std::printf("%zu byte read, %d handlers of the second\n", reader.join(), ran);
  });
}
