// The code of the coroutine passage of docs/guide/io-contexts.md.
//
// Run:    build/release/examples/io/guide_executor
// Prints: the talk of a coroutine and a fiber.
#include <vigil/io/executor.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using vigil::io::use_fiber;

int main() {
  return vigil::run([] {
    //! [coroutine]
    auto lines = vigil::make_channel<std::string>();
    const auto writes = [lines]() -> asio::awaitable<int> {
      asio::steady_timer t(co_await asio::this_coro::executor, 1ms);
      co_await t.async_wait(asio::use_awaitable);  // waits as a coroutine
      lines.send("from a coroutine");              // waits as a fiber
      lines.close();
      co_return 1;
    };
    auto reader = vigil::spawn([lines] {
      while (const auto line = lines.recv())
        std::puts(line->c_str());
    });
    const int n = asio::co_spawn(vigil::io::executor(), writes(), use_fiber);
    reader.join();
    std::printf("%d line\n", n);
    //! [coroutine]
  });
}
