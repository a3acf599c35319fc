// What examples/io/http_server does about clients that have gone, or are slow to take
// their answers, at exact moments.
#include "http_server/settings.hpp"
#include "io/http_test.hpp"

#include <vector>

#include <boost/asio/completion_condition.hpp>
#include <boost/asio/read.hpp>

using namespace vigil::http_testing;
using vigil::clock;
using vigil::io::memory_stream;

namespace {

const std::string_view hello = "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n";

// A socket as the kernel has it, at its worst: a try takes what there is room for, but
// that there is some it never reports.
class unreported {
 public:
  using executor_type = memory_stream::executor_type;

  explicit unreported(memory_stream s) : stream_(std::move(s)), full_(vigil::io::memory_pipe(1)) {
    full_.first.async_write_some(asio::buffer("x", 1), vigil::io::use_fiber);
  }

  executor_type get_executor() { return stream_.get_executor(); }

  bool non_blocking() const { return is_non_blocking_; }

  void non_blocking(bool on, error_code& error) {
    is_non_blocking_ = on;
    error.clear();
  }

  template <class Buffers>
  std::size_t read_some(const Buffers& to, error_code& error) {
    return now([&](auto token) { return stream_.async_read_some(to, token); }, error);
  }

  template <class Buffers>
  std::size_t write_some(const Buffers& from, error_code& error) {
    return now([&](auto token) { return stream_.async_write_some(from, token); }, error);
  }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& to, Token&& token) {
    return stream_.async_read_some(to, std::forward<Token>(token));
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return full_.first.async_write_some(from, std::forward<Token>(token));
  }

 private:
  template <class F>
  static std::size_t now(F begin, error_code& error) {
    const auto [e, n] = begin(asio::as_tuple(vigil::io::use_fiber.until(clock::time_point::min())));
    error = e == asio::error::timed_out ? error_code(asio::error::would_block) : e;
    return n;
  }

  memory_stream stream_;
  std::pair<memory_stream, memory_stream> full_;
  bool is_non_blocking_ = false;
};

}  // namespace

TEST_SUITE("http server: clients that go or are slow") {
  TEST_CASE("a client that takes 64 KiB in time is not cut, whatever its socket reports") {
    in_virtual([] {
      constexpr std::size_t size = 1 << 20;
      web::server server([](const web::request&, web::response& out, const vigil::context&) {
        out.send(std::string(size, 'x'));
      });
      auto [near, far] = vigil::io::memory_pipe(std::size_t{256} << 10);
      auto talking = vigil::spawn([&, far = std::move(far)]() mutable {
        server.talk(unreported(std::move(far)), vigil::background());
      });
      memory_client c(std::move(near));
      c.send(hello);
      std::size_t n = 0;
      std::vector<char> part(64 << 10);
      error_code error;
      while (n < size && !error) {
        vigil::sleep_for(29s);
        n += asio::read(c.stream(), asio::buffer(part), asio::transfer_exactly(part.size()), error);
      }
      CHECK(!error);
      CHECK(n >= size);

      // Nor one that has taken most of it: it has that time once more, not for ever.
      c.send(hello);
      vigil::sleep_for(1s);
      const auto start = clock::now();
      n = 0;
      while (server.connections() != 0) {
        vigil::sleep_for(29s);
        n += c.stream().read_some(asio::buffer(part.data(), 1), error);
        if (error || n > 10) break;
      }
      CHECK(n <= 3);
      CHECK(since(start) <= 90s);
      talking.join();
    });
  }
}
