// Deadlines as in Go's net: net/timeout_test.go and nettest, over TCP, Unix sockets
// and a pipe in memory, the last on virtual time, too.
#include "io/transports.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using namespace vigil::io_testing;
using vigil::clock;

namespace {

// Of a handler for which there is no memory.
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

TEST_SUITE("deadline_stream") {
  TEST_CASE("a past deadline fails each call, though bytes and room are there") {
    over_each([](auto& near, auto& far) {
      far.write_some(asio::buffer("abc", 3));
      near.set_deadline(long_ago);
      for (int i = 0; i < 3; ++i) {
        std::size_t n = 1;
        CHECK(read_one(near, &n) == timed_out);
        CHECK(n == 0);
        CHECK(write_until_error(near) == timed_out);
      }
      near.set_deadline(clock::now());  // now counts as past
      CHECK(read_one(near) == timed_out);
      // As good as before once it is taken away.
      near.set_deadline(no_deadline);
      std::size_t n = 0;
      CHECK(!read_one(near, &n));
      CHECK(n == 3);
      CHECK(near.write_some(asio::buffer("x", 1)) == 1);
      CHECK(!read_one(far));
    });
  }

  TEST_CASE("a future deadline: success until it passes, then the error, not before") {
    over_each([](auto& near, auto& far) {
      const auto until = clock::now() + 5ms;
      near.set_deadline(until);
      far.write_some(asio::buffer("abc", 3));
      const error_code first = read_one(near);
      CHECK((!first || clock::now() >= until));
      CHECK(read_one(near) == timed_out);
      CHECK(clock::now() >= until);
      const auto later = clock::now() + 5ms;
      near.set_write_deadline(later);
      CHECK(write_until_error(near) == timed_out);
      CHECK(clock::now() >= later);
    });
  }

  TEST_CASE("timeouts from a nanosecond up all end, none early") {
    over_each([](auto& near, auto&) {
      for (const auto d : {1ns, 2ns, 5ns, 50ns, 100ns, 200ns, 500ns, 750ns}) {
        const auto until = clock::now() + d;
        near.set_read_deadline(until);
        CHECK(read_one(near) == timed_out);
        CHECK(clock::now() >= until);
      }
      for (const auto d : {1us, 5us, 25us, 250us, 500us, 1000us, 5000us, 20'000us}) {
        const auto until = clock::now() + d;
        near.set_read_deadline(until);
        CHECK(read_one(near) == timed_out);
        CHECK(clock::now() >= until);
      }
    });
  }

  TEST_CASE("the deadline of one direction does not touch the other") {
    over_each([](auto& near, auto& far) {
      near.set_write_deadline(long_ago);
      auto writer = vigil::spawn([&] {
        vigil::sleep_for(2ms);
        far.write_some(asio::buffer("x", 1));
      });
      CHECK(!read_one(near));
      writer.join();
      near.set_write_deadline(no_deadline);
      near.set_read_deadline(long_ago);
      CHECK(near.write_some(asio::buffer("x", 1)) == 1);
    });
  }

  TEST_CASE("moved into the past it releases who waits") {
    over_each([](auto& near, auto&) {
      for (const auto first : {no_deadline, clock::now() + 1h}) {
        near.set_read_deadline(first);
        auto reader = vigil::spawn([&] { return read_one(near); });
        vigil::sleep_for(1ms);
        near.set_read_deadline(long_ago);
        CHECK(reader.join() == timed_out);
      }
    });
  }

  TEST_CASE("moved later, or taken away, it lets him wait on") {
    over_virtual_memory::run([](auto& near, auto& far) {
      const auto early = clock::now() + 3ms;
      const auto late = early + 5ms;
      near.set_read_deadline(early);
      auto reader = vigil::spawn([&] { return read_one(near); });
      vigil::this_fiber::yield();
      near.set_read_deadline(late);
      CHECK(reader.join() == timed_out);
      CHECK(clock::now() >= late);
      near.set_read_deadline(clock::now() + 1ms);
      auto other = vigil::spawn([&] {
        std::size_t n = 0;
        CHECK(!read_one(near, &n));
        return n;
      });
      vigil::this_fiber::yield();
      near.set_read_deadline(no_deadline);
      vigil::sleep_for(3ms);
      far.write_some(asio::buffer("ab", 2));
      CHECK(other.join() == 2);
    });
  }

  TEST_CASE("a plain thread moves it") {
    in_runtime({.workers = {1, 2}}, [] {
      auto [near, far] = tcp_connection();
      auto reader = vigil::spawn([&near = near] { return read_one(near); });
      std::thread outside([&near = near] { near.set_read_deadline(long_ago); });
      CHECK(reader.join() == timed_out);
      outside.join();
    });
  }

  TEST_CASE("on virtual time a deadline in memory comes at its very nanosecond") {
    for_each_seed(10, [] {
      auto ends = vigil::io::memory_pipe(4);
      memory_stream near(std::move(ends.first));
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
                                 memory_stream near(std::move(one));
                                 read_one(near);
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("close releases readers and writers, without calling it a timeout") {
    over_each([](auto& near, auto&) {
      auto reader = vigil::spawn([&] { return read_one(near); });
      auto second = vigil::spawn([&] { return read_one(near); });
      auto writer = vigil::spawn([&] { return write_until_error(near); });
      vigil::sleep_for(2ms);
      near.close();
      near.close();
      const error_code aborted = asio::error::operation_aborted;
      const error_code closed = asio::error::bad_descriptor;
      const error_code one = reader.join();
      const error_code two = second.join();
      const error_code three = writer.join();
      // On real time one may have begun afterwards.
      const bool all_waited = vigil::internal::current_scheduler()->is_virtual();
      CHECK((one == closed || two == closed));
      CHECK((one == closed || one == aborted));
      CHECK((two == closed || two == aborted));
      CHECK((three == aborted || (three == closed && !all_waited)));
      CHECK((one == aborted || two == aborted || !all_waited));
      CHECK(read_one(near) == closed);
    });
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

  TEST_CASE("an hour's deadline that is armed anew for each of a thousand echoes") {
    over_each([](auto& near, auto& far) {
      const int all = rounds(1000);
      auto echo = vigil::spawn([&] {
        char byte = 0;
        for (int i = 0; i < all; ++i) {
          far.set_deadline(clock::now() + 1h);
          asio::read(far, asio::buffer(&byte, 1));
          asio::write(far, asio::buffer(&byte, 1));
        }
      });
      for (int i = 0; i < all; ++i) {
        char byte = static_cast<char>(i);
        near.set_deadline(clock::now() + 1h);
        asio::write(near, asio::buffer(&byte, 1));
        near.set_read_deadline(clock::now() + 1h);
        byte = static_cast<char>(i + 1);
        asio::read(near, asio::buffer(&byte, 1));
        REQUIRE(byte == static_cast<char>(i));
      }
      echo.join();
    });
  }

  TEST_CASE("deadlines of microseconds that are set all the time: no hang, no byte lost") {
    over_each([](auto& near, auto& far) {
      auto setter = vigil::spawn([&] {
        for (int i = 0; i < rounds(2000); ++i) {
          near.set_deadline(clock::now() + 2us);
          far.set_deadline(clock::now() + 2us);
          vigil::sleep_for(2us);
        }
        // On a slow machine nothing at all gets through before.
        near.set_deadline(no_deadline);
        far.set_deadline(no_deadline);
      });
      const std::uint32_t all = static_cast<std::uint32_t>(rounds(2000));
      auto writer = vigil::spawn([&] {
        for (std::uint32_t i = 0; i < all;) {
          const auto byte = static_cast<unsigned char>(i);
          error_code error;
          if (far.write_some(asio::buffer(&byte, 1), error) == 1) ++i;
          if (error) vigil::this_fiber::yield();
        }
      });
      for (std::uint32_t i = 0; i < all;) {
        unsigned char byte = 0;
        error_code error;
        if (near.read_some(asio::buffer(&byte, 1), error) == 1) {
          REQUIRE(byte == static_cast<unsigned char>(i));
          ++i;
        }
        if (error) vigil::this_fiber::yield();
      }
      setter.join();
      writer.join();
    });
  }

  TEST_CASE("many readers, many writers and setters at once") {
    over_each([](auto& near, auto& far) {
      std::atomic<std::size_t> read{0};
      const std::size_t all = 64 * 200;
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 8; ++i) {
        fibers.push_back(vigil::spawn([&] {
          const std::array<char, 200> bytes{};
          for (int k = 0; k < 8; ++k)
            asio::write(far, asio::buffer(bytes));
        }));
        fibers.push_back(vigil::spawn([&] {
          while (read.load() < all) {
            std::size_t n = 0;
            const error_code error = read_one(near, &n);
            REQUIRE((!error || error == timed_out));
            if (read.fetch_add(n) + n == all) near.set_read_deadline(long_ago);
          }
        }));
        fibers.push_back(vigil::spawn([&] {
          far.set_write_deadline(clock::now() + 1h);
          vigil::this_fiber::yield();
        }));
      }
      for (auto& f : fibers)
        f.join();
      CHECK(read.load() == all);
    });
  }

  TEST_CASE("Asio's own functions for synchronous streams wait as fibers do") {
    over_each([](auto& near, auto& far) {
      auto writer = vigil::spawn([&] {
        asio::write(far, asio::buffer("one\ntw", 6));
        vigil::sleep_for(1ms);
        asio::write(far, asio::buffer("o\n", 2));
      });
      std::string text;
      CHECK(asio::read_until(near, asio::dynamic_buffer(text), '\n') == 4);
      text.erase(0, 4);
      CHECK(asio::read_until(near, asio::dynamic_buffer(text), '\n') == 4);
      CHECK(text == "two\n");
      writer.join();
      near.set_read_deadline(clock::now() + 1ms);
      CHECK(error_of([&] { asio::read_until(near, asio::dynamic_buffer(text), 'x'); }) ==
            timed_out);
      far.close();
      near.set_read_deadline(no_deadline);
      CHECK(read_one(near) == asio::error::eof);
    });
  }

  TEST_CASE("a stop ends the wait and lets the next one have its turn") {
    over_each([](auto& near, auto& far) {
      auto reader = vigil::spawn([&] { read_one(near); });
      vigil::sleep_for(1ms);
      reader.request_stop();
      CHECK_THROWS_AS(reader.join(), vigil::cancelled);
      far.write_some(asio::buffer("x", 1));
      CHECK(!read_one(near));
    });
  }

  TEST_CASE("a stop ends the wait of one whose turn has not come") {
    over_each([](auto& near, auto& far) {
      auto first = vigil::spawn([&] { return read_one(near); });
      vigil::sleep_for(1ms);
      auto second = vigil::spawn([&] { read_one(near); });
      vigil::sleep_for(1ms);
      second.request_stop();
      CHECK_THROWS_AS(second.join(), vigil::cancelled);
      far.write_some(asio::buffer("x", 1));
      CHECK(!first.join());
    });
  }

  TEST_CASE("a socket that is opened anew below does not block the worker either") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::context();
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
      read(i == 0 ? early : late);  // the same place in memory, most likely
      if (i == 1) early.emit(asio::cancellation_type::all);
      other.async_write_some(asio::buffer("x", 1), [](error_code, std::size_t) {});
    }
    c.run();
    CHECK(ended == std::vector<error_code>(2));
  }
}
