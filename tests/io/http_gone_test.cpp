// How examples/io/http_server treats clients that have gone, or are slow to take their
// answers, at exact moments; and the arguments that its command line accepts.
#include "http_server/settings.hpp"
#include "io/http_test.hpp"

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/completion_condition.hpp>
#include <boost/asio/read.hpp>

using namespace vigil::http_testing;
using vigil::io::memory_stream;

namespace {

// How the handlers of a site have ended, and when.
struct ends {
  std::vector<std::chrono::nanoseconds> after;
  std::vector<std::string> causes;
};

// /slow waits for an hour under its context.
web::handler slow(ends& e) {
  return [&e](const web::request& in, web::response& out, const vigil::context& ctx) {
    const auto start = clock::now();
    try {
      if (in.path() == "/slow") vigil::sleep_for(1h, ctx);
      if (in.path() == "/short") vigil::sleep_for(1s, ctx);
    } catch (const vigil::cancelled&) {
      e.after.push_back(since(start));
      try {
        std::rethrow_exception(ctx.cause());
      } catch (const std::system_error& error) {
        e.causes.push_back(error.code().message());
      } catch (const std::exception& error) {
        e.causes.push_back(error.what());
      }
      throw;
    }
    out.send(in.path());
  };
}

// The kernel's socket at its worst: a try takes as much as there is room for, but the
// room is never reported.
class unreported {
 public:
  using executor_type = memory_stream::executor_type;

  explicit unreported(memory_stream s) : stream_(std::move(s)), full_(vigil::io::memory_pipe(1)) {
    full_.first.async_write_some(asio::buffer("x", 1), vigil::io::use_fiber);
  }

  executor_type get_executor() { return stream_.get_executor(); }

  bool is_readable() const { return has_kept_ || stream_.is_readable(); }

  bool non_blocking() const { return is_non_blocking_; }

  void non_blocking(bool on, error_code& error) {
    is_non_blocking_ = on;
    error.clear();
  }

  static constexpr auto wait_read = asio::socket_base::wait_read;
  static constexpr auto wait_write = asio::socket_base::wait_write;

  // A byte that has come is kept for read_some.
  template <class Handler>
  void async_wait(asio::socket_base::wait_type direction, Handler handler) {
    if (direction == wait_read) {
      const auto take = [this, handler = std::make_shared<Handler>(std::move(handler))](
                            error_code e, std::size_t n) {
        has_kept_ = n != 0;
        (*handler)(e);
      };
      stream_.async_read_some(asio::buffer(&kept_, 1),
                              asio::bind_cancellation_slot(reading_->slot(), take));
    } else {
      const auto never = [handler = std::make_shared<Handler>(std::move(handler))](
                             error_code e, std::size_t) { (*handler)(e); };
      full_.first.async_write_some(asio::buffer("x", 1), never);
    }
  }

  void cancel(error_code& error) {
    reading_->emit(asio::cancellation_type::terminal);
    error.clear();
  }

  template <class Buffers>
  std::size_t read_some(const Buffers& to, error_code& error) {
    if (std::exchange(has_kept_, false)) {
      error.clear();
      return asio::buffer_copy(to, asio::buffer(&kept_, 1));
    }
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
  std::unique_ptr<asio::cancellation_signal> reading_ =
      std::make_unique<asio::cancellation_signal>();
  char kept_ = 0;
  bool has_kept_ = false;
};

class unreported_acceptor {
 public:
  memory_stream connect() { return below_.connect(); }

  template <class Token>
  unreported async_accept(Token token) {
    return unreported(below_.async_accept(token));
  }

 private:
  vigil::io::memory_acceptor below_{std::size_t{256} << 10};
};

}  // namespace

TEST_SUITE("http server: clients that go or are slow") {
  TEST_CASE("a handler's context ends when its client has gone, even with requests outstanding") {
    for_each_seed(20, [] {
      ends e;
      site s({}, slow(e));
      s.connect().get("/slow");
      vigil::sleep_for(1s);
      REQUIRE(e.after.size() == 1);
      CHECK(e.after.back() < 1s);
      {
        auto c = s.connect();
        c.get("/slow");
        vigil::sleep_for(5s);
        c.send(hello);  // it is read ahead
        vigil::sleep_for(5s);
      }
      vigil::sleep_for(1ms);
      REQUIRE(e.after.size() == 2);
      CHECK(e.after.back() == 10s);
      CHECK(e.causes == std::vector<std::string>(2, "End of file"));
      CHECK(s.server().connections() == 0);
      CHECK(s.server().served() == 0);
    });
  }

  TEST_CASE("bytes sent during a long answer are the next request, and nothing is late") {
    for_each_seed(20, [] {
      ends e;
      site s({}, slow(e));
      auto c = s.connect();
      for (int i = 0; i < 3; ++i) {
        const auto start = clock::now();
        c.get("/short");
        vigil::sleep_for(500ms);
        c.get("/short");
        CHECK(c.receive().body() == "/short");
        CHECK(since(start) == 1s);
        c.send(std::string(hello) + std::string(hello.substr(0, 10)));
        CHECK(c.receive().body() == "/short");
        CHECK(since(start) == 2s);
        CHECK(c.receive().body() == "/hello");
        c.send(hello.substr(10));
        CHECK(c.receive().body() == "/hello");
        CHECK(since(start) == 2s);
      }
      // The idle time is unchanged.
      const auto start = clock::now();
      CHECK(c.is_closed());
      CHECK(since(start) == 120s);
      CHECK(e.after.empty());
    });
  }

  TEST_CASE("a handler whose client sends without end waits on, and the client's bytes wait too") {
    in_virtual([] {
      ends e;
      site s({}, slow(e));
      auto c = s.connect();
      c.get("/short");
      vigil::sleep_for(100ms);
      const error_code error = error_of([&] {
        std::size_t sent = 0;
        c.stream().set_write_deadline(clock::now() + 500ms);
        for (;; ++sent) {
          REQUIRE(sent < 100);
          c.send(std::string(2000, '\n'));
        }
      });
      CHECK(error == asio::error::timed_out);
      c.stream().set_write_deadline(clock::time_point::max());
      CHECK(c.receive().body() == "/short");
    });
  }

  TEST_CASE("a handler that is stopped, or fails, leaves no reader behind") {
    for_each_seed(20, [] {
      vigil::io::serve_limits limits;
      limits.grace = 1s;
      limits.on_error = [](const std::exception_ptr&) {};
      site s(
          {},
          [](const web::request& in, web::response&, const vigil::context&) {
            vigil::sleep_for(in.path() == "/fails" ? 1s : 1h);
            throw std::runtime_error("on purpose");
          },
          limits);
      auto failing = s.connect();
      failing.get("/fails");
      auto stopped = s.connect();
      stopped.get("/");
      CHECK(failing.receive().result_int() == 500);
      CHECK(failing.is_closed());
      const auto start = clock::now();
      s.stop();
      s.join();
      CHECK(since(start) == 1s);
      CHECK(stopped.is_closed());
    });
  }

  TEST_CASE("an answer that nobody takes any more ends the context of its handler") {
    in_virtual([] {
      bool is_done = false;
      site s({}, [&](const web::request&, web::response& out, const vigil::context& ctx) {
        try {
          for (;;)
            out.write(std::string(1000, 'x'));
        } catch (const boost::system::system_error&) {
          is_done = ctx.is_done();
          throw;
        }
      });
      auto c = s.connect();
      c.send(hello);
      vigil::sleep_for(31s);
      CHECK(s.server().connections() == 0);
      CHECK(is_done);
    });
  }

  TEST_CASE("a client that takes 64 KiB in time is not cut, whatever its socket reports") {
    in_virtual([] {
      constexpr std::size_t size = 1 << 20;
      web::server server([](const web::request&, web::response& out, const vigil::context&) {
        out.send(std::string(size, 'x'));
      });
      unreported_acceptor acceptor;
      auto [stopping, stop] = vigil::with_cancel(vigil::background());
      auto serving = vigil::spawn([&, stopping = stopping] { server.serve(stopping, acceptor); });
      memory_client c(acceptor.connect());
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

      // A client that has taken most of it may go on: it gets that time once more, but
      // not for ever.
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
      stop();
      serving.join();
    });
  }

  TEST_CASE("a nonsensical command line is refused, with the valid options") {
    const auto read = [](std::vector<std::string> words) {
      std::vector<char*> all;
      words.insert(words.begin(), "http_server");
      for (std::string& w : words)
        all.push_back(w.data());
      return web::read_settings(static_cast<int>(all.size()), all.data());
    };
    for (const std::string bad : {"99999",
                                  "65536",
                                  "abc",
                                  "80x",
                                  "8 0",
                                  "-1",
                                  "+80",
                                  "",
                                  "--idle=abc",
                                  "--idle=",
                                  "--idle=0",
                                  "--idle=-1",
                                  "--idle=1s",
                                  "--idle=99999999999",
                                  "--header=1.5",
                                  "--header=0",
                                  "--workers=-1",
                                  "--workers=many",
                                  "--workers=99999999999999999999",
                                  "--worker=1",
                                  "--self-test=1"}) {
      CHECK_THROWS_AS_MESSAGE(read({bad}), std::invalid_argument, bad);
    }
    CHECK_THROWS_WITH(read({"99999"}),
                      "PORT is \"99999\"; it must be a whole number from 0 to 65535");
    CHECK_THROWS_WITH(read({"--idle=abc"}),
                      "--idle is \"abc\"; it must be a whole number from 1 to 1000000000");
    CHECK_THROWS_AS(read({"80", "81"}), std::invalid_argument);
    CHECK(read({}).port == 0);
    const auto s = read({"65535", "--idle=5", "--header=1", "--workers=0"});
    CHECK(s.port == 65535);
    CHECK(s.times.idle == 5s);
    CHECK(s.times.header == 1s);
    CHECK(s.workers == 0);
    CHECK(!s.tests_itself);
    CHECK(read({"--self-test"}).tests_itself);
  }
}
