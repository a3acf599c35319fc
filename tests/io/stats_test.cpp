// The counter of I/O operations in a runtime's statistics.
#include "io/io_test.hpp"

#include <boost/asio/redirect_error.hpp>

using namespace vigil::io_testing;

TEST_SUITE("stats") {
  TEST_CASE("each operation for which a fiber waits counts until it ends") {
    in_runtime({.workers = {1}}, [] {
      const auto pending = [] { return vigil::stats().io_pending; };
      asio::io_context& context = vigil::io::io_context();
      socket_pair first(context);
      socket_pair second(context);
      const auto read = [](unix_socket& from) {
        return vigil::spawn([&from] {
          char byte = 0;
          error_code ignored;
          from.async_read_some(asio::buffer(&byte, 1), asio::redirect_error(use_fiber, ignored));
        });
      };
      // One worker: the others run as far as they can.
      const auto let_others_wait = [] {
        for (int i = 0; i < 20; ++i)
          vigil::this_fiber::yield();
      };
      CHECK(pending() == 0);
      auto reads = read(first.near);
      let_others_wait();
      CHECK(pending() == 1);
      auto is_cut = read(second.near);
      let_others_wait();
      CHECK(pending() == 2);
      asio::write(first.far, asio::buffer("b", 1));
      reads.join();
      CHECK(pending() == 1);
      second.near.cancel();
      is_cut.join();
      CHECK(pending() == 0);
    });
  }
}
