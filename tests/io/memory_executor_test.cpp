// Handlers and composed operations over streams in memory: on fibers of the runtime, in
// an order that the seed decides and replays.
#include "io/io_test.hpp"

#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/memory_stream.hpp>

#include <functional>
#include <memory>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/read_until.hpp>

using namespace vigil::io_testing;
using vigil::io::memory_executor;
using vigil::io::memory_pipe;
using vigil::io::memory_stream;

namespace {

static_assert(asio::execution::is_executor<memory_executor>::value);
static_assert(std::is_convertible_v<memory_executor, asio::any_io_executor>);
static_assert(std::is_same_v<memory_stream::executor_type, memory_executor>);

// A reader whose handlers have no executor: it reads piece after piece, beside others.
struct reader {
  memory_stream stream;
  int number;
  std::vector<int>& events;
  std::string text = std::string(3, ' ');

  void next() {
    asio::async_read(stream, asio::buffer(text), [this](error_code error, std::size_t) {
      if (error) return;
      events.push_back(number);
      next();
    });
  }
};

// The numbers of the streams in the order in which they got their pieces.
std::vector<int> events_of(std::uint64_t seed) {
  std::vector<int> events;
  vigil::testing::run_virtual({.seed = seed, .runtime = {}}, [&] {
    constexpr int streams = 5;
    constexpr int pieces = 4;
    std::vector<std::unique_ptr<reader>> readers;
    std::vector<vigil::fiber<void>> writers;
    for (int i = 0; i < streams; ++i) {
      auto [near, far] = memory_pipe(2);  // a piece comes in two steps
      readers.push_back(std::make_unique<reader>(reader{std::move(far), i, events}));
      readers.back()->next();
      writers.push_back(vigil::spawn([s = std::move(near)]() mutable {
        for (int k = 0; k < pieces; ++k)
          asio::async_write(s, asio::buffer("abc", 3), use_fiber);
      }));
    }
    for (auto& w : writers)
      w.join();
    vigil::testing::settle();
    CHECK(events.size() == streams * pieces);
    for (const auto& r : readers) {
      error_code ignored;
      r->stream.close(ignored);
    }
    vigil::testing::settle();
  });
  return events;
}

}  // namespace

TEST_SUITE("io: composed operations in memory") {
  TEST_CASE("a seed replays the order of several streams' events, another seed gives another") {
    bool differs = false;
    const std::vector<int> first = events_of(1);
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const std::vector<int> once = events_of(seed);
      for (int again = 0; again < 5; ++again)
        REQUIRE(events_of(seed) == once);
      differs |= once != first;
    }
    CHECK(differs);
  }

  TEST_CASE("the clock moves on while a fiber waits for one, and its deadline ends it") {
    for_each_seed(10, [] {
      auto [near, far] = memory_pipe();
      const auto start = vigil::clock::now();
      std::string text(6, ' ');
      CHECK(error_of([&, &from = far] {
              asio::async_read(from, asio::buffer(text), use_fiber.within(10s));
            }) == asio::error::timed_out);
      CHECK(vigil::clock::now() == start + 10s);
      auto writer = vigil::spawn([&to = near] {
        for (int i = 0; i < 2; ++i) {
          vigil::sleep_for(1s);
          asio::async_write(to, asio::buffer("abc", 3), use_fiber);
        }
      });
      asio::async_read(far, asio::buffer(text), use_fiber.within(1h));
      CHECK(text == "abcabc");
      CHECK(vigil::clock::now() == start + 12s);
      writer.join();
    });
  }

  TEST_CASE("an operation that nobody completes is a deadlock") {
    CHECK_THROWS_AS(vigil::testing::run_virtual([] {
                      auto [near, far] = memory_pipe();
                      char byte = 0;
                      asio::async_read(far, asio::buffer(&byte, 1), use_fiber);
                    }),
                    vigil::deadlock);
  }

  TEST_CASE("a stop and a context end one, and a handler may wait") {
    for_each_seed(20, [] {
      auto [near, far] = memory_pipe();
      std::string text(6, ' ');
      const auto read = [&, &from = far](const auto& token) {
        asio::async_read(from, asio::buffer(text), token);
      };
      auto stopped = vigil::spawn([&] { read(use_fiber); });
      vigil::sleep_for(1s);
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      const auto asked = vigil::with_timeout(vigil::background(), 1s);
      CHECK_THROWS_AS(read(use_fiber.under(asked.ctx)), vigil::cancelled);
      auto heard = vigil::make_channel<std::string>();
      far.async_read_some(asio::buffer(text), [&](error_code, std::size_t n) {
        vigil::sleep_for(1s);
        heard.send(text.substr(0, n));
      });
      asio::async_write(near, asio::buffer("abc", 3), use_fiber);
      CHECK(heard.recv() == "abc");
    });
  }

  TEST_CASE("a run may end beside one") {
    for_each_seed(20, [](std::uint64_t seed) {
      auto ends = std::make_shared<std::pair<memory_stream, memory_stream>>(memory_pipe(2));
      auto text = std::make_shared<std::string>(6, ' ');
      vigil::go([=] { asio::async_read(ends->first, asio::buffer(*text), use_fiber); });
      vigil::go([=] { asio::async_write(ends->second, asio::buffer("abcde", 5), use_fiber); });
      for (std::uint64_t i = 0; i < seed; ++i)
        vigil::this_fiber::yield();
    });
  }

  TEST_CASE("on several workers, and with a plain thread at the other end") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const std::string all(static_cast<std::size_t>(rounds(20'000)), 'x');
      auto [near, far] = memory_pipe(7);
      auto writer =
          vigil::spawn([&, &to = near] { asio::async_write(to, asio::buffer(all), use_fiber); });
      std::string got(all.size(), ' ');
      asio::async_read(far, asio::buffer(got), use_fiber);
      writer.join();
      CHECK(got == all);
      const auto announced = vigil::runtime::current().make_work_guard();
      std::thread outside([&, &to = near] {
        to.async_write_some(asio::buffer("x", 1), [](error_code, std::size_t) {});
        error_code ignored;
        to.close(ignored);
      });
      error_code end;
      asio::async_read(far, asio::buffer(got), asio::redirect_error(use_fiber, end));
      CHECK(end == asio::error::eof);
      outside.join();
    });
  }
}
