// deadline_tests.hpp over TCP, Unix sockets and a pipe in memory, the last on virtual
// time, too; and the properties that no other stream has.
#include "io/deadline_tests.hpp"

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

using namespace vigil::io_testing;
using vigil::clock;

namespace {

// The slot of a handler for which there is no memory.
struct full_slot {
  bool is_connected() const noexcept { return true; }

  template <class F>
  void assign(F&&) const {
    throw std::bad_alloc();
  }
};

struct full_slot_handler {
  using cancellation_slot_type = full_slot;

  full_slot get_cancellation_slot() const noexcept { return {}; }

  void operator()(error_code, std::size_t) const {}

  std::shared_ptr<int> kept;
};

}  // namespace

namespace vigil::io_testing {

TEST_SUITE_BEGIN("deadline_stream");
VIGIL_DEADLINE_TESTS(over_virtual_memory, over_memory, over_tcp, over_unix);
VIGIL_VIRTUAL_DEADLINE_TESTS(over_virtual_memory);
TEST_SUITE_END();

}  // namespace vigil::io_testing

TEST_SUITE("deadline_stream") {
  // Go: TestReadTimeoutUnblocksRead.
  TEST_CASE("a plain thread moves it") {
    in_runtime({.workers = {1, 2}}, [] {
      auto [near, far] = tcp_connection();
      auto reader = vigil::spawn([&near = near] { return read_one(near); });
      std::thread outside([&near = near] { near.set_read_deadline(long_ago); });
      CHECK(reader.join() == timed_out);
      outside.join();
    });
  }

  // Go: TestReadTimeoutFluctuation, TestWriteTimeoutFluctuation.
  TEST_CASE("on virtual time a deadline in memory comes at its very nanosecond") {
    for_each_seed(10, [] {
      auto ends = vigil::io::memory_pipe(4);
      timed_memory_stream near(std::move(ends.first));
      const auto start = clock::now();
      near.set_deadline(start + 1h);
      CHECK(read_one(near) == timed_out);
      CHECK(since(start) == 1h);
      near.set_write_deadline(start + 2h);
      CHECK(write_until_error(near) == timed_out);
      CHECK(since(start) == 2h);
      char byte = 0;
      CHECK(error_of([&] {
              ends.second.async_read_some(asio::buffer(&byte, 1), vigil::io::use_fiber.within(1h));
            }) == error_code());
      CHECK(byte == 'x');
      CHECK(since(start) == 2h);
    });
  }

  TEST_CASE("two ends in memory that wait for each other are a deadlock") {
    vigil::options fatal;
    fatal.deadlock = vigil::on_deadlock::fatal;
    CHECK_THROWS_AS(vigil::run(fatal,
                               [] {
                                 auto [one, other] = vigil::io::memory_pipe();
                                 timed_memory_stream near(std::move(one));
                                 read_one(near);
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("close_write tells the peer that no more comes, and reading goes on") {
    over_each([](auto& near, auto& far) {
      auto reader = vigil::spawn([&] { return read_one(far); });
      error_code error;
      near.close_write(error);
      CHECK_FALSE(error);
      CHECK(reader.join() == asio::error::eof);
      far.write_some(asio::buffer("x", 1));
      CHECK_FALSE(read_one(near));
      CHECK(write_until_error(near));
      far.close_write(error);
      CHECK(read_one(near) == asio::error::eof);
    });
  }

  TEST_CASE("over TCP written bytes are sent at once, unless set otherwise") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      tcp::acceptor a(c, {asio::ip::address_v4::loopback(), 0});
      const auto sends_at_once = [](auto& socket) {
        tcp::no_delay option;
        socket.get_option(option);
        return option.value();
      };
      const auto use = [](auto& stream) { stream.write_some(asio::buffer("x", 1)); };
      tcp_stream s(c);
      const auto connect = [&] {
        s.next_layer().connect(a.local_endpoint());
        REQUIRE_FALSE(sends_at_once(s.next_layer()));
      };
      connect();
      use(s);
      CHECK(sends_at_once(s.next_layer()));
      s.set_no_delay(false);
      use(s);
      CHECK_FALSE(sends_at_once(s.next_layer()));
      s.set_no_delay(true);
      use(s);
      CHECK(sends_at_once(s.next_layer()));

      // A read sets it, too, and so does the first use of a socket that is opened anew
      // and was already non-blocking.
      s.next_layer().close();
      connect();
      s.next_layer().non_blocking(true);
      s.set_no_delay(true);
      s.set_read_deadline(clock::now());
      read_one(s);
      CHECK_FALSE(sends_at_once(s.next_layer()));  // too late for any read
      for (auto d = std::chrono::milliseconds(1); !sends_at_once(s.next_layer()) && d < 10min;
           d *= 2) {
        s.set_read_deadline(clock::now() + d);
        CHECK(read_one(s) == timed_out);
      }
      CHECK(sends_at_once(s.next_layer()));

      // A setting made before there was a socket counts, too.
      tcp_stream told(c);
      told.set_no_delay(false);
      told.next_layer().connect(a.local_endpoint());
      use(told);
      CHECK_FALSE(sends_at_once(told.next_layer()));

      vigil::io::deadline_stream<asio::generic::stream_protocol::socket> generic(c);
      generic.next_layer().connect(a.local_endpoint());
      use(generic);
      CHECK(sends_at_once(generic.next_layer()));

      // Other kinds of sockets have no such option and are left alone.
      auto [near, far] = unix_connection();
      vigil::io::deadline_stream<asio::generic::stream_protocol::socket> of_unix(
          std::move(near.next_layer()));
      use(of_unix);
      CHECK(!read_one(far));
      far.set_no_delay(true);
      use(far);
      CHECK(!read_one(of_unix));
    });
  }

  TEST_CASE("a socket that is opened anew below does not block the worker either") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      unix_stream s(c);
      for (int i = 0; i < 2; ++i) {
        unix_socket peer(c);
        asio::local::connect_pair(s.next_layer(), peer);
        asio::write(peer, asio::buffer("x", 1));
        CHECK(!read_one(s));
        CHECK(s.next_layer().non_blocking());
        s.next_layer().close();
      }
    });
  }
}

TEST_SUITE("memory_pipe") {
  TEST_CASE("operations of many steps do not grow the stack") {
    in_runtime({.workers = {1, 2}}, [] {
      auto [one, other] = vigil::io::memory_pipe(4);
      const std::string sent(static_cast<std::size_t>(rounds(10'000)), 'x');
      std::string got(sent.size(), ' ');
      auto reader = vigil::spawn([&, &other = other] {
        return asio::async_read(other, asio::buffer(got), vigil::io::use_fiber);
      });
      CHECK(asio::async_write(one, asio::buffer(sent), vigil::io::use_fiber) == sent.size());
      CHECK(reader.join() == sent.size());
      CHECK(got == sent);
    });
  }

  TEST_CASE("a handler does not run inside the call that begins or completes its operation") {
    asio::io_context c;
    auto [one, other] = vigil::io::memory_pipe();
    char byte = 0;
    int ran = 0;
    auto handler = asio::bind_executor(c.get_executor(), [&](error_code, std::size_t n) {
      CHECK(n == 1);
      ++ran;
    });
    const auto run_in_c = [&] {
      CHECK(std::exchange(ran, 0) == 0);
      c.restart();
      c.run();
      CHECK(std::exchange(ran, 0) == 1);
    };
    asio::post(c, [&, &one = one] {
      one.async_write_some(asio::buffer("x", 1), handler);
      CHECK(ran == 0);
    });
    run_in_c();
    asio::post(c, [&, &other = other] {
      other.async_read_some(asio::buffer(&byte, 1), handler);
      CHECK(ran == 0);
    });
    run_in_c();
    CHECK(byte == 'x');
  }

  TEST_CASE("an operation that cannot be begun leaves nothing behind") {
    auto [one, other] = vigil::io::memory_pipe();
    char byte = 0;
    const auto kept = std::make_shared<int>(0);
    CHECK_THROWS_AS(one.async_read_some(asio::buffer(&byte, 1), full_slot_handler{kept}),
                    std::bad_alloc);
    CHECK(kept.use_count() == 1);
  }

  TEST_CASE("a cancellation that comes too late does not reach another operation") {
    asio::io_context c;
    auto [one, other] = vigil::io::memory_pipe();
    char byte = 0;
    std::vector<error_code> ended;
    const auto read = [&, &one = one](asio::cancellation_signal& signal) {
      one.async_read_some(
          asio::buffer(&byte, 1),
          asio::bind_executor(
              c.get_executor(),
              asio::bind_cancellation_slot(
                  signal.slot(), [&](error_code error, std::size_t) { ended.push_back(error); })));
    };
    asio::cancellation_signal early;
    asio::cancellation_signal late;
    for (int i = 0; i < 2; ++i) {
      read(i == 0 ? early : late);  // most likely at the same address
      if (i == 1) early.emit(asio::cancellation_type::all);
      other.async_write_some(asio::buffer("x", 1), [](error_code, std::size_t) {});
    }
    c.run();
    CHECK(ended == std::vector<error_code>(2));
  }
}
