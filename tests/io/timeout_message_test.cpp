// The message of a timeout: which of vigil's times is over, in exceptions and in codes.
#include "io/transports.hpp"
#include "support/note.hpp"

#include <vigil/clock.hpp>
#include <vigil/io/idle_list.hpp>

#include <chrono>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/errc.hpp>

using namespace vigil::io_testing;

namespace {

// Checks that f throws an error that says so and counts as a timeout for every test.
template <class F>
void check_says(const std::string& expected, F f) {
  NOTE("expected: ", expected);
  try {
    f();
    FAIL("returned");
  } catch (const boost::system::system_error& e) {
    NOTE("what: ", e.what());
    CHECK(std::string(e.what()).find(expected) != std::string::npos);
    CHECK(std::string(e.what()).find("Connection timed out") == std::string::npos);
    CHECK(e.code().message().find(expected) != std::string::npos);
    char buffer[128];
    CHECK(std::string(e.code().message(buffer, sizeof buffer)).find(expected) != std::string::npos);
    CHECK(e.code() == asio::error::timed_out);
    CHECK(asio::error::timed_out == e.code());
    CHECK(e.code() == boost::system::errc::timed_out);
    CHECK(e.code().category() == boost::system::system_category());
    CHECK(hash_value(e.code()) == hash_value(error_code(asio::error::timed_out)));
    const std::error_code of_std = e.code();
    CHECK(of_std == std::errc::timed_out);
    CHECK(of_std == std::error_code(error_code(asio::error::timed_out)));
  }
}

}  // namespace

TEST_SUITE("timeouts") {
  TEST_CASE("what() of a timeout names the token's time that is over, and is not TCP's") {
    in_runtime({.workers = {1}}, [] {
      socket_pair s(vigil::io::io_context());
      char byte = 0;
      const auto room = asio::buffer(&byte, 1);
      const auto past = clock::now();
      check_says("use_fiber.within", [&] { s.near.async_read_some(room, use_fiber.within(1ms)); });
      check_says("use_fiber.until", [&] { s.near.async_read_some(room, use_fiber.until(past)); });
      check_says("use_fiber.within", [&] {
        asio::async_initiate<const vigil::io::fiber_token, void(std::exception_ptr)>(
            [](auto handler) {
              auto slot = asio::get_associated_cancellation_slot(handler);
              slot.assign([h = std::move(handler)](asio::cancellation_type) mutable {
                asio::post(vigil::io::io_context(), [h = std::move(h)]() mutable {
                  std::move(h)(std::make_exception_ptr(
                      boost::system::system_error(asio::error::operation_aborted)));
                });
              });
            },
            use_fiber.within(0s));
      });
      const auto [code, n] = s.near.async_read_some(room, asio::as_tuple(use_fiber.within(1ms)));
      CHECK(code == asio::error::timed_out);
      CHECK(code.message() == "vigil: the time given to use_fiber.within is over");
    });
  }

  TEST_CASE("what() of a timeout says which of a stream's times is over, by Asio's functions too") {
    over_each([](auto& near, auto& far) {
      char byte = 0;
      const auto room = asio::buffer(&byte, 1);
      const auto soon = [] { return clock::now() + 1ms; };
      near.set_read_deadline(soon());
      check_says("the read deadline", [&] { asio::read(near, room); });
      check_says("the read deadline", [&] { near.read_some(room); });  // has passed already
      CHECK(near.read_error() == asio::error::timed_out);
      near.set_deadline(no_deadline);
      far.set_write_deadline(soon());
      const std::vector<char> many(1 << 16, 'x');
      check_says("the write deadline", [&] {
        for (;;)
          asio::write(far, asio::buffer(many));
      });
      const auto before = clock::time_point::min();
      far.set_write_deadline(before);
      check_says("the write deadline", [&] { far.write_some(room); });
    });
  }

  TEST_CASE("what() of a timeout says that it was the idle list, or the deadline beside it") {
    for_each_seed(5, [] {
      vigil::io::idle_list idle(10s);
      auto made = memory_connection();
      made.near.set_idle_list(idle);
      char byte = 0;
      const auto room = asio::buffer(&byte, 1);
      check_says("idle_list", [&] { asio::read(made.near, room); });
      made.near.set_read_deadline(clock::now() + 3s);
      check_says("the read deadline", [&] { asio::read(made.near, room); });
      made.near.set_read_deadline(clock::now() + 30s);
      check_says("idle_list", [&] { asio::read(made.near, room); });
    });
  }
}
