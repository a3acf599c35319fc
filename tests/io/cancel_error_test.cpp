// The error that is reported when an operation ends after it was asked to: the
// deadline's, the context's, the stop's, or its own.
#include "io/io_test.hpp"
#include "support/note.hpp"

#include <vigil/context.hpp>
#include <vigil/fiber.hpp>
#include <vigil/sync.hpp>

#include <functional>
#include <memory>
#include <system_error>

#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/experimental/channel_error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/system/errc.hpp>

using namespace vigil::io_testing;

namespace {

namespace channel_errc = asio::experimental::channel_errc;

// Boost's base class has a protected non-virtual destructor on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"

// A library's own codes: 1 means cancelled, 2 does not.
class own_category final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "own"; }

  std::string message(int) const override { return "as a library says it"; }

  boost::system::error_condition default_error_condition(int code) const noexcept override {
    if (code == 1) return make_error_condition(boost::system::errc::operation_canceled);
    return {code, *this};
  }
};

#pragma GCC diagnostic pop

class own_std_category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "own, of std"; }

  std::string message(int) const override { return "as a library says it"; }

  std::error_condition default_error_condition(int code) const noexcept override {
    if (code == 1) return std::make_error_condition(std::errc::operation_canceled);
    return {code, *this};
  }
};

const own_category own_codes;
const own_std_category own_of_std;

const error_code ways_to_say_cancelled[] = {
    asio::error::operation_aborted,
    channel_errc::channel_cancelled,
    make_error_code(boost::system::errc::operation_canceled),
    error_code(1, own_codes),
    std::error_code(1, own_of_std),
    std::make_error_code(std::errc::operation_canceled),
};

const error_code genuine_errors[] = {
    asio::error::eof,
    asio::error::connection_reset,
    channel_errc::channel_closed,
    error_code(2, own_codes),
    std::error_code(2, own_of_std),
};

// Fails when it is asked to end, and not before.
template <class Signature, class Error, class Token>
auto fail_when_asked(asio::io_context& context, Error how, Token&& token) {
  return asio::async_initiate<Token, Signature>(
      [&context, how](auto handler) {
        auto slot = asio::get_associated_cancellation_slot(handler);
        auto kept = std::make_shared<decltype(handler)>(std::move(handler));
        slot.assign([&context, how, kept](asio::cancellation_type) {
          asio::post(context, [how, kept] { std::move (*kept)(how); });
        });
      },
      token);
}

template <class Token>
auto fail_when_asked(error_code how, Token&& token) {
  return fail_when_asked<void(error_code)>(vigil::io::io_context(), how, token);
}

template <class Token>
auto throw_when_asked(std::exception_ptr how, Token&& token) {
  return fail_when_asked<void(std::exception_ptr)>(vigil::io::io_context(), how, token);
}

}  // namespace

TEST_SUITE("use_fiber: the reported error") {
  TEST_CASE("after a deadline every code that means cancelled is timed_out, no other is") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto soon = use_fiber.within(1ms);
      for (const error_code& code : ways_to_say_cancelled) {
        NOTE("code.message(): ", code.message());
        CHECK(error_of([&] { fail_when_asked(code, soon); }) == asio::error::timed_out);
        error_code seen;
        fail_when_asked(code, asio::redirect_error(soon, seen));
        CHECK(seen == asio::error::timed_out);
        CHECK(fail_when_asked(code, asio::as_tuple(soon)) ==
              std::tuple(error_code(asio::error::timed_out)));
        CHECK(error_of([&] {
                throw_when_asked(std::make_exception_ptr(boost::system::system_error(code)), soon);
              }) == asio::error::timed_out);
      }
      const auto of_std =
          std::make_exception_ptr(std::system_error(std::error_code(1, own_of_std)));
      CHECK(error_of([&] { throw_when_asked(of_std, soon); }) == asio::error::timed_out);
      for (const error_code& code : genuine_errors) {
        NOTE("code.message(): ", code.message());
        CHECK(error_of([&] { fail_when_asked(code, soon); }) == code);
        CHECK(error_of([&] {
                throw_when_asked(std::make_exception_ptr(boost::system::system_error(code)), soon);
              }) == code);
      }
    });
  }

  TEST_CASE("after a cancel any error is `cancelled`, whatever the wrapper") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto check = [](const error_code& code) {
        NOTE("code.message(): ", code.message());
        const auto done = vigil::with_cancel(vigil::background());
        done.cancel();
        const auto token = use_fiber.under(done.ctx);
        error_code seen;
        CHECK_THROWS_AS(fail_when_asked(code, token), vigil::cancelled);
        CHECK_THROWS_AS(fail_when_asked(code, asio::as_tuple(token)), vigil::cancelled);
        CHECK_THROWS_AS(fail_when_asked(code, asio::redirect_error(token, seen)), vigil::cancelled);
        CHECK_THROWS_AS(
            throw_when_asked(std::make_exception_ptr(boost::system::system_error(code)), token),
            vigil::cancelled);
      };
      for (const error_code& code : ways_to_say_cancelled)
        check(code);
      for (const error_code& code : genuine_errors)
        check(code);
    });
  }

  TEST_CASE("a fiber that is stopped does not run on with any error") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto check = [](const error_code& code) {
        NOTE("code.message(): ", code.message());
        bool ran_on = false;
        {
          vigil::latch begun(1);
          const auto reader = vigil::spawn([&] {
            begun.count_down();
            fail_when_asked(code, asio::as_tuple(use_fiber));
            ran_on = true;
          });
          begun.wait();
        }  // asks it to stop, and joins
        CHECK_FALSE(ran_on);
      };
      for (const error_code& code : ways_to_say_cancelled)
        check(code);
      for (const error_code& code : genuine_errors)
        check(code);
    });
  }

  TEST_CASE("a wait for an Asio channel ends by its deadline, its context and a stop") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::experimental::channel<void(error_code, int)> lines(vigil::io::io_context());
      CHECK(error_of([&] { lines.async_receive(use_fiber.within(1ms)); }) ==
            asio::error::timed_out);
      const auto done = vigil::with_cancel(vigil::background());
      done.cancel();
      CHECK_THROWS_AS(lines.async_receive(use_fiber.under(done.ctx)), vigil::cancelled);
      bool ran_on = false;
      {
        vigil::latch begun(1);
        const auto reader = vigil::spawn([&] {
          begun.count_down();
          lines.async_receive(asio::as_tuple(use_fiber));
          ran_on = true;
        });
        begun.wait();
      }
      CHECK_FALSE(ran_on);
      lines.close();
      CHECK(error_of([&] { lines.async_receive(use_fiber.within(1h)); }) ==
            channel_errc::channel_closed);
    });
  }

  TEST_CASE("a moved-from token has no context") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto done = vigil::with_cancel(vigil::background());
      auto token = use_fiber.under(done.ctx);
      const auto moved = std::move(token);
      done.cancel();
      const error_code aborted = asio::error::operation_aborted;
      CHECK(error_of([&] { fail_when_asked(aborted, token.within(1ms)); }) ==
            asio::error::timed_out);
      CHECK_THROWS_AS(fail_when_asked(aborted, moved), vigil::cancelled);
    });
  }

  // AddressSanitizer sees a context that is not kept.
  TEST_CASE("an operation keeps its context, whatever becomes of its token") {
    in_runtime({.workers = {1}}, [] {
      auto token = use_fiber.within(1h);
      std::function<void()> complete;
      vigil::fiber<> waiting;
      {
        const auto done = vigil::with_cancel(vigil::background());
        token = use_fiber.under(done.ctx);
        waiting = vigil::spawn([&] {
          const auto keep_handler = [&](auto handler) {
            const auto kept = std::make_shared<decltype(handler)>(std::move(handler));
            complete = [kept] { std::move (*kept)(asio::error::operation_aborted); };
          };
          CHECK_THROWS_AS((asio::async_initiate<vigil::io::fiber_token&, void(error_code)>(
                              keep_handler, token)),
                          vigil::cancelled);
        });
        while (!complete)
          vigil::this_fiber::yield();
        vigil::this_fiber::yield();  // it waits under the context
        done.cancel();
        vigil::this_fiber::yield();  // it waits for its handler, which does not come
        token = use_fiber.within(1h);
      }
      complete();
      complete = nullptr;
      waiting.join();
    });
  }
}
