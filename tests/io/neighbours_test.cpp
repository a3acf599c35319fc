// Neighbours of fibers in a program that uses Asio: signals, coroutines, futures,
// channels of Asio's.
#include "io/io_test.hpp"
#include "support/send_to_process.hpp"

#include <atomic>
#include <csignal>
#include <future>
#include <tuple>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

using namespace vigil::io_testing;

namespace {

// A cancelled composed read may already have bytes in its buffer.
std::string read_line(unix_socket& from, std::string& text) {
  const std::size_t n = asio::async_read_until(from, asio::dynamic_buffer(text), '\n', use_fiber);
  std::string line = text.substr(0, n);
  text.erase(0, n);
  return line;
}

// Handlers that never end: each posts the next.
class flood {
 public:
  explicit flood(int many) {
    for (int i = 0; i < many; ++i)
      next();
  }

  void stop() {
    stopped_.store(true);
    while (alive_.load() != 0)
      vigil::sleep_for(100us);
  }

  std::size_t ran() const { return ran_.load(); }

 private:
  void next() {
    alive_.fetch_add(1);
    asio::post(context_, [this] {
      ran_.fetch_add(1);
      if (!stopped_.load()) next();
      alive_.fetch_sub(1);
    });
  }

  asio::io_context& context_ = vigil::io::io_context();
  std::atomic<std::size_t> ran_{0};
  std::atomic<int> alive_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace

TEST_SUITE("io: beside fibers") {
  // Asio: I/O starves fibers, fibers starve I/O.
  TEST_CASE("handlers that are never done starve neither sleeps, fibers nor other I/O") {
    in_runtime({.workers = {1, 2}}, [] {
      flood handlers(100);
      for (int i = 0; i < 20; ++i)
        vigil::sleep_for(100us);
      for (int i = 0; i < rounds(200); ++i)
        vigil::spawn([] { vigil::this_fiber::yield(); }).join();
      socket_pair pair(vigil::io::io_context());
      for (int i = 0; i < 20; ++i) {
        char byte = 0;
        auto reader =
            vigil::spawn([&] { asio::async_read(pair.near, asio::buffer(&byte, 1), use_fiber); });
        vigil::this_fiber::yield();
        asio::write(pair.far, asio::buffer("x", 1));
        reader.join();
        CHECK(byte == 'x');
      }
      handlers.stop();
      CHECK(handlers.ran() > 100);  // nor are they starved
    });
  }

  TEST_CASE("a signal ends requests that have not begun, and lets the others finish") {
    in_runtime({}, [] {
      auto& c = vigil::io::io_context();
      socket_pair idle(c);
      socket_pair busy(c);
      asio::signal_set signals(c, SIGUSR1);
      auto [stopping, stop] = vigil::with_cancel(vigil::background());
      auto session = [ctx = stopping](unix_socket& peer) {
        char first = 0;
        try {
          peer.async_read_some(asio::buffer(&first, 1), use_fiber.under(ctx));
        } catch (const vigil::cancelled&) {
          return std::string();
        }
        std::string rest;
        return first + read_line(peer, rest);  // half a request: no stop ends it
      };
      auto not_begun = vigil::spawn([&] { return session(idle.near); });
      auto begun = vigil::spawn([&] { return session(busy.near); });
      asio::async_write(busy.far, asio::buffer("half", 4), use_fiber);
      send_to_process(SIGUSR1);
      REQUIRE(signals.async_wait(use_fiber) == SIGUSR1);
      while (busy.near.available() > 0)
        vigil::this_fiber::yield();
      stop();
      CHECK(not_begun.join().empty());
      asio::async_write(busy.far, asio::buffer(" and half\n", 10), use_fiber);
      CHECK(begun.join() == "half and half\n");
    });
  }

  TEST_CASE("a wait for a signal has a deadline, and one that comes later is not lost") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::signal_set signals(vigil::io::io_context(), SIGUSR1);
      const auto start = vigil::clock::now();
      const auto code = error_of([&] { signals.async_wait(use_fiber.within(5ms)); });
      CHECK(code == asio::error::timed_out);
      CHECK(since(start) >= 5ms);
      send_to_process(SIGUSR1);
      CHECK(signals.async_wait(use_fiber) == SIGUSR1);
    });
  }

  TEST_CASE("the first of two reads counts; the other has ended, and its data is there") {
    in_runtime({}, [] {
      socket_pair a(vigil::io::io_context());
      socket_pair b(vigil::io::io_context());
      std::string of_a;
      std::string of_b;
      for (int i = 0; i < rounds(400); ++i) {
        auto lines = vigil::make_channel<std::string>(2);
        vigil::group both;
        both.go([&] { lines.send(read_line(a.near, of_a)); });
        both.go([&] { lines.send(read_line(b.near, of_b)); });
        auto other = vigil::spawn([&] {
          if (i % 2 == 0) asio::async_write(b.far, asio::buffer("b\n", 2), use_fiber);
        });
        asio::async_write(a.far, asio::buffer("a\n", 2), use_fiber);
        std::string got = *lines.recv();
        other.join();
        both.cancel();
        both.wait();
        while (const auto more = lines.try_recv())
          got += *more;
        if (a.near.available() > 0 || !of_a.empty()) got += read_line(a.near, of_a);
        if (b.near.available() > 0 || !of_b.empty()) got += read_line(b.near, of_b);
        REQUIRE(got.size() == (i % 2 == 0 ? 4U : 2U));
      }
    });
  }

  TEST_CASE("a future is waited for on the side pool, with one worker as well") {
    in_runtime({.workers = {1, 2}}, [] {
      socket_pair s(vigil::io::io_context());
      char byte = 0;
      std::future<std::size_t> later =
          asio::async_read(s.near, asio::buffer(&byte, 1), asio::use_future);
      auto writer =
          vigil::spawn([&] { asio::async_write(s.far, asio::buffer("x", 1), use_fiber); });
      CHECK(vigil::blocking([&] { return later.get(); }) == 1);
      CHECK(byte == 'x');
      writer.join();
    });
  }

  TEST_CASE("a timer of Asio's that is moved ends its waiter's wait") {
    in_runtime({.workers = {1}}, [] {
      asio::steady_timer t(vigil::io::io_context(), 1h);
      auto waiting = vigil::spawn([&] { return error_of([&] { t.async_wait(use_fiber); }); });
      while (t.expires_after(1h) == 0)
        vigil::this_fiber::yield();
      CHECK(waiting.join() == asio::error::operation_aborted);
    });
  }

#ifdef BOOST_ASIO_HAS_CO_AWAIT
  TEST_CASE("a fiber waits for a coroutine and gets its value or its exception, over I/O") {
    in_runtime({}, [] {
      auto& c = vigil::io::io_context();
      const auto pauses = [](int n) -> asio::awaitable<int> {
        asio::steady_timer t(co_await asio::this_coro::executor, 1ms);
        co_await t.async_wait(asio::use_awaitable);
        if (n < 0) throw std::out_of_range("less than nothing");
        co_return 2 * n;
      };
      CHECK(asio::co_spawn(c, pauses(21), use_fiber) == 42);
      CHECK_THROWS_AS(asio::co_spawn(c, pauses(-1), use_fiber), std::out_of_range);
    });
  }

  TEST_CASE("a channel of Asio's between a coroutine and a fiber") {
    // It is not for several threads.
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      asio::experimental::channel<void(error_code, int)> numbers(c, 2);
      asio::co_spawn(
          c,
          [&]() -> asio::awaitable<void> {
            for (int i = 0; i < 100; ++i)
              co_await numbers.async_send(error_code(), i, asio::use_awaitable);
            co_await numbers.async_send(asio::error::eof, 0, asio::use_awaitable);
          },
          asio::detached);
      int sum = 0;
      for (;;) {
        const auto [error, n] = numbers.async_receive(asio::as_tuple(use_fiber.within(1h)));
        if (error) {
          CHECK(error == asio::error::eof);
          break;
        }
        sum += n;
      }
      CHECK(sum == 4950);
    });
  }
#endif
}
