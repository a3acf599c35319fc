// A user's program with I/O.
#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

#include <boost/asio/steady_timer.hpp>

int main() {
  return vigil::run([] {
    boost::asio::steady_timer soon(vigil::io::io_context(), std::chrono::milliseconds(1));
    soon.async_wait(vigil::io::use_fiber);
    std::puts("vigil-io says hello");
  });
}
