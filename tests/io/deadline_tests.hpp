// The rows of Go's net/timeout_test.go that are about a stream, once for all transports:
// doctest templates, like those of nettest.hpp.
//
//   VIGIL_DEADLINE_TESTS(over_tcp, over_unix)
#pragma once

#include "io/nettest.hpp"

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace vigil::io_testing {

// Go: TestReadTimeout, TestWriteTimeout; zero time, now, overflow; moved before
// the waiter ran.
TEST_CASE_TEMPLATE_DEFINE("a past deadline fails each call, though bytes and room are there",
                          Transport,
                          deadline_past) {
  Transport::run([](auto& near, auto& far) {
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
    // Once the deadline is removed all is as before.
    near.set_deadline(no_deadline);
    std::size_t n = 0;
    CHECK(!read_one(near, &n));
    CHECK(n == 3);
    CHECK(near.write_some(asio::buffer("x", 1)) == 1);
    CHECK(!read_one(far));
  });
}

// Go: TestReadTimeout, TestWriteTimeout.
TEST_CASE_TEMPLATE_DEFINE("a future deadline: success until it passes, then the error, not before",
                          Transport,
                          deadline_future) {
  Transport::run([](auto& near, auto& far) {
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

// Go: TestReadTimeoutFluctuation, TestWriteTimeoutFluctuation.
TEST_CASE_TEMPLATE_DEFINE("timeouts from a nanosecond up all end, none early",
                          Transport,
                          deadline_from_a_nanosecond) {
  Transport::run([](auto& near, auto&) {
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

// Go: TestReadTimeoutFluctuation, TestWriteTimeoutFluctuation.
TEST_CASE_TEMPLATE_DEFINE("timeouts of writes, which fill the buffers, all end, none early",
                          Transport,
                          deadline_of_writes) {
  Transport::in_runtimes({1, 2}, [] {
    for (const auto d : {1ns, 50ns, 750ns, 5'000ns, 250'000ns, 1'000'000ns, 20'000'000ns}) {
      auto c = Transport::make();
      const auto due = clock::now() + d;
      c.near.set_write_deadline(due);
      CHECK(write_until_error(c.near) == timed_out);
      check_reached<Transport>(due);
    }
  });
}

// Go: TestVariousDeadlines, -1Proc, -4Proc.
TEST_CASE_TEMPLATE_DEFINE("deadlines up to a second, each on a connection that is never silent",
                          Transport,
                          deadline_various) {
  constexpr clock::duration various[] = {
      1ns, 2ns, 5ns, 50ns, 500ns, 1us, 5us, 50us, 500us, 1ms, 5ms, 50ms, 500ms, 1s};
  Transport::in_runtimes({1, 2, 4}, [&] {
    for (const auto d : various) {
      if (!Transport::exact && d > 10ms) continue;  // too long in real time
      auto c = Transport::make();
      auto source = spawn([&] {
        error_code error;
        while (!error) {
          c.far.write_some(asio::buffer("x", 1), error);
          sleep_for(d / 8 + 1ns);
        }
      });
      const auto due = clock::now() + d;
      c.near.set_read_deadline(due);
      error_code error;
      while (!error)
        error = read_one(c.near);
      CHECK(error == timed_out);
      check_reached<Transport>(due);
    }
  });
}

// Go: TestReadTimeoutMustNotReturn, -WriteTimeoutMustNotReturn.
TEST_CASE_TEMPLATE_DEFINE("the deadline of one direction does not touch the other",
                          Transport,
                          deadline_one_direction) {
  Transport::run([](auto& near, auto& far) {
    near.set_write_deadline(long_ago);
    auto writer = spawn([&] {
      sleep_for(2ms);
      far.write_some(asio::buffer("x", 1));
    });
    CHECK(!read_one(near));
    writer.join();
    near.set_write_deadline(no_deadline);
    near.set_read_deadline(long_ago);
    CHECK(near.write_some(asio::buffer("x", 1)) == 1);
  });
}

// Go: TestReadTimeoutUnblocksRead; zero time, now, overflow; moved before the
// waiter ran.
TEST_CASE_TEMPLATE_DEFINE("a deadline moved into the past releases the waiters",
                          Transport,
                          deadline_moved_back) {
  Transport::run([](auto& near, auto&) {
    for (const auto first : {no_deadline, clock::now() + 1h}) {
      near.set_read_deadline(first);
      auto reader = spawn([&] { return read_one(near); });
      sleep_for(1ms);
      near.set_read_deadline(long_ago);
      CHECK(reader.join() == timed_out);
    }
  });
}

// Go: TestReadTimeoutUnblocksRead; zero time, now, overflow; moved before the
// waiter ran.
TEST_CASE_TEMPLATE_DEFINE("a deadline moved later, or removed, lets the waiter wait on",
                          Transport,
                          deadline_moved_later) {
  Transport::run([](auto& near, auto& far) {
    const auto early = clock::now() + 3ms;
    const auto late = early + 5ms;
    near.set_read_deadline(early);
    auto reader = spawn([&] { return read_one(near); });
    this_fiber::yield();
    near.set_read_deadline(late);
    CHECK(reader.join() == timed_out);
    CHECK(clock::now() >= late);
    near.set_read_deadline(clock::now() + 1ms);
    auto other = spawn([&] {
      std::size_t n = 0;
      CHECK(!read_one(near, &n));
      return n;
    });
    this_fiber::yield();
    near.set_read_deadline(no_deadline);
    sleep_for(3ms);
    far.write_some(asio::buffer("ab", 2));
    CHECK(other.join() == 2);
  });
}

// Go: TestReadTimeoutMustNotReturn, -WriteTimeoutMustNotReturn;
// TestCloseUnblocksRead.
TEST_CASE_TEMPLATE_DEFINE("close releases readers and writers, without calling it a timeout",
                          Transport,
                          deadline_close) {
  Transport::run([](auto& near, auto&) {
    auto reader = spawn([&] { return read_one(near); });
    auto second = spawn([&] { return read_one(near); });
    auto writer = spawn([&] { return write_until_error(near); });
    sleep_for(2ms);
    near.close();
    near.close();
    const error_code aborted = asio::error::operation_aborted;
    const error_code closed = asio::error::bad_descriptor;
    const error_code one = reader.join();
    const error_code two = second.join();
    const error_code three = writer.join();
    // In real time one of them may have begun afterwards.
    const bool all_waited = vigil::detail::current_scheduler()->clock.is_virtual();
    CHECK((one == closed || two == closed));
    CHECK((one == closed || one == aborted));
    CHECK((two == closed || two == aborted));
    CHECK((three == aborted || (three == closed && !all_waited)));
    CHECK((one == aborted || two == aborted || !all_waited));
    CHECK(read_one(near) == closed);
  });
}

// Go: TestReadWriteProlongedTimeout.
TEST_CASE_TEMPLATE_DEFINE("an hour's deadline that is armed anew for each of a thousand echoes",
                          Transport,
                          deadline_prolonged) {
  Transport::run([](auto& near, auto& far) {
    const int all = rounds(1000);
    auto echo = spawn([&] {
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

// Go: TestReadWriteDeadlineRace.
TEST_CASE_TEMPLATE_DEFINE(
    "deadlines of microseconds that are set all the time: no hang, no byte lost",
    Transport,
    deadline_microseconds) {
  Transport::run([](auto& near, auto& far) {
    auto setter = spawn([&] {
      for (int i = 0; i < rounds(2000); ++i) {
        near.set_deadline(clock::now() + 2us);
        if (Transport::outlives_write_timeouts) far.set_deadline(clock::now() + 2us);
        sleep_for(2us);
      }
      // On a slow machine nothing at all gets through before.
      near.set_deadline(no_deadline);
      far.set_deadline(no_deadline);
    });
    const std::uint32_t all = static_cast<std::uint32_t>(rounds(2000));
    auto writer = spawn([&] {
      for (std::uint32_t i = 0; i < all;) {
        const auto byte = static_cast<unsigned char>(i);
        error_code error;
        if (far.write_some(asio::buffer(&byte, 1), error) == 1) ++i;
        if (error) this_fiber::yield();
      }
    });
    for (std::uint32_t i = 0; i < all;) {
      unsigned char byte = 0;
      error_code error;
      if (near.read_some(asio::buffer(&byte, 1), error) == 1) {
        REQUIRE(byte == static_cast<unsigned char>(i));
        ++i;
      }
      if (error) this_fiber::yield();
    }
    setter.join();
    writer.join();
  });
}

// Go: nettest ConcurrentMethods.
TEST_CASE_TEMPLATE_DEFINE("many readers, many writers and setters at once",
                          Transport,
                          deadline_many) {
  Transport::run([](auto& near, auto& far) {
    std::atomic<std::size_t> read{0};
    const std::size_t all = 64 * 200;
    std::vector<fiber<>> fibers;
    for (int i = 0; i < 8; ++i) {
      fibers.push_back(spawn([&] {
        const std::array<char, 200> bytes{};
        for (int k = 0; k < 8; ++k)
          asio::write(far, asio::buffer(bytes));
      }));
      fibers.push_back(spawn([&] {
        while (read.load() < all) {
          std::size_t n = 0;
          const error_code error = read_one(near, &n);
          REQUIRE((!error || error == timed_out));
          if (read.fetch_add(n) + n == all) near.set_read_deadline(long_ago);
        }
      }));
      fibers.push_back(spawn([&] {
        far.set_write_deadline(clock::now() + 1h);
        this_fiber::yield();
      }));
    }
    for (auto& f : fibers)
      f.join();
    CHECK(read.load() == all);
  });
}

TEST_CASE_TEMPLATE_DEFINE("Asio's own functions for synchronous streams wait as fibers do",
                          Transport,
                          deadline_own_functions) {
  Transport::run([](auto& near, auto& far) {
    auto writer = spawn([&] {
      asio::write(far, asio::buffer("one\ntw", 6));
      sleep_for(1ms);
      asio::write(far, asio::buffer("o\n", 2));
    });
    std::string text;
    CHECK(asio::read_until(near, asio::dynamic_buffer(text), '\n') == 4);
    text.erase(0, 4);
    CHECK(asio::read_until(near, asio::dynamic_buffer(text), '\n') == 4);
    CHECK(text == "two\n");
    writer.join();
    near.set_read_deadline(clock::now() + 1ms);
    CHECK(error_of([&] { asio::read_until(near, asio::dynamic_buffer(text), 'x'); }) == timed_out);
    Transport::finish(far);
    near.set_read_deadline(no_deadline);
    CHECK(read_one(near) == asio::error::eof);
  });
}

TEST_CASE_TEMPLATE_DEFINE("a stop ends the wait and lets the next one have its turn",
                          Transport,
                          deadline_stopped) {
  Transport::run([](auto& near, auto& far) {
    auto reader = spawn([&] { read_one(near); });
    sleep_for(1ms);
    reader.request_stop();
    CHECK_THROWS_AS(reader.join(), cancelled);
    far.write_some(asio::buffer("x", 1));
    CHECK(!read_one(near));
  });
}

TEST_CASE_TEMPLATE_DEFINE("a stop ends the wait of a fiber whose turn has not come",
                          Transport,
                          deadline_stopped_in_queue) {
  Transport::run([](auto& near, auto& far) {
    auto first = spawn([&] { return read_one(near); });
    sleep_for(1ms);
    auto second = spawn([&] { read_one(near); });
    sleep_for(1ms);
    second.request_stop();
    CHECK_THROWS_AS(second.join(), cancelled);
    far.write_some(asio::buffer("x", 1));
    CHECK(!first.join());
    auto writer = spawn([&] { return write_until_error(near); });
    sleep_for(1ms);
    auto behind = spawn([&] { write_until_error(near); });
    sleep_for(1ms);
    behind.request_stop();
    CHECK_THROWS_AS(behind.join(), cancelled);
    const auto due = clock::now() + 1ms;
    near.set_write_deadline(due);
    const error_code error = writer.join();
    // It is unharmed. In real time the other one may have waited in its place.
    if (!Transport::exact && !Transport::outlives_write_timeouts) return;
    CHECK(error == timed_out);
    check_reached<Transport>(due);
  });
}

TEST_CASE_TEMPLATE_DEFINE("a deadline also ends the waits of fibers whose turn has not come",
                          Transport,
                          deadline_in_queue) {
  Transport::run([](auto& near, auto&) {
    const auto due = clock::now() + 2ms;
    near.set_deadline(due);
    std::vector<fiber<error_code>> calls;
    for (int i = 0; i < 4; ++i) {
      calls.push_back(spawn([&] { return read_one(near); }));
      calls.push_back(spawn([&] { return write_until_error(near); }));
    }
    for (auto& f : calls)
      CHECK(f.join() == timed_out);
    check_reached<Transport>(due);
  });
}

#define VIGIL_DEADLINE_TESTS(...)                                     \
  TEST_CASE_TEMPLATE_INVOKE(deadline_past, __VA_ARGS__);              \
  TEST_CASE_TEMPLATE_INVOKE(deadline_future, __VA_ARGS__);            \
  TEST_CASE_TEMPLATE_INVOKE(deadline_from_a_nanosecond, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(deadline_of_writes, __VA_ARGS__);         \
  TEST_CASE_TEMPLATE_INVOKE(deadline_various, __VA_ARGS__);           \
  TEST_CASE_TEMPLATE_INVOKE(deadline_one_direction, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(deadline_moved_back, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(deadline_close, __VA_ARGS__);             \
  TEST_CASE_TEMPLATE_INVOKE(deadline_prolonged, __VA_ARGS__);         \
  TEST_CASE_TEMPLATE_INVOKE(deadline_microseconds, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(deadline_many, __VA_ARGS__);              \
  TEST_CASE_TEMPLATE_INVOKE(deadline_own_functions, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(deadline_stopped, __VA_ARGS__);           \
  TEST_CASE_TEMPLATE_INVOKE(deadline_stopped_in_queue, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(deadline_in_queue, __VA_ARGS__)

// For transports on virtual time only.
#define VIGIL_VIRTUAL_DEADLINE_TESTS(...) \
  TEST_CASE_TEMPLATE_INVOKE(deadline_moved_later, __VA_ARGS__)

}  // namespace vigil::io_testing
