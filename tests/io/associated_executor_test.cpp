// The executor that use_fiber's handlers have: what an operation may do with it, and with
// cancellation in it.
#include "io/io_test.hpp"

#include <functional>
#include <memory>
#include <optional>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

using namespace vigil::io_testing;

namespace {

// Ends with the first of two waits, both bound to the associated executor. The second is
// then cancelled, its handler comes when the operation is over, and it calls `second`.
template <class Token>
void first_of_two(asio::io_context& context, std::function<void()> second, Token&& token) {
  asio::async_initiate<Token, void()>(
      [&](auto handler) {
        using handler_type = decltype(handler);
        struct state {
          asio::steady_timer soon;
          asio::steady_timer late;
          std::optional<handler_type> whole;
        };
        const auto here = asio::get_associated_executor(handler);
        auto s = std::make_shared<state>(state{asio::steady_timer(context, 100us),
                                               asio::steady_timer(context, 1h),
                                               std::move(handler)});
        s->late.async_wait(
            asio::bind_executor(here, [s, second = std::move(second)](error_code) { second(); }));
        s->soon.async_wait(asio::bind_executor(here, [s](error_code) {
          s->late.cancel();
          handler_type whole = std::move(*s->whole);
          s->whole.reset();
          std::move(whole)();
        }));
      },
      token);
}

// Ends when it is cancelled, later and not within the call: it hops to the associated
// executor and calls `asked` there.
template <class Token>
void end_when_cancelled(asio::io_context& context, std::function<void()> asked, Token&& token) {
  asio::async_initiate<Token, void(error_code)>(
      [&](auto handler) {
        using handler_type = decltype(handler);
        auto slot = asio::get_associated_cancellation_slot(handler);
        const auto here = asio::get_associated_executor(handler);
        auto whole = std::make_shared<handler_type>(std::move(handler));
        auto times = std::make_shared<int>(0);
        slot.assign([here, whole, times, asked = std::move(asked), &context](
                        asio::cancellation_type_t) {
          asio::dispatch(here, [whole, times, asked, &context] {
            asked();
            if ((*times)++ != 0) return;
            asio::post(context, [whole] { (*whole)(error_code(asio::error::operation_aborted)); });
          });
        });
      },
      token);
}

}  // namespace

TEST_SUITE("use_fiber: the associated executor") {
  // Asio: the associated executor goes before its copies; a cancellation that
  // dispatches on it.
  TEST_CASE("copies serve after the operation's end, on any thread") {
    in_runtime({.workers = {1, 2}}, [] {
      std::function<void(std::function<void()>)> dispatch;
      std::function<void(std::function<void()>)> post;
      asio::async_initiate<const vigil::io::use_fiber_t, void()>(
          [&](auto handler) {
            const auto here = asio::get_associated_executor(handler);
            dispatch = [here](std::function<void()> f) { asio::dispatch(here, std::move(f)); };
            post = [here](std::function<void()> f) { asio::post(here, std::move(f)); };
            std::move(handler)();
          },
          use_fiber);
      int ran = 0;
      dispatch([&] { ++ran; });
      CHECK(ran == 1);
      std::thread([&] { dispatch([&] { ++ran; }); }).join();
      CHECK(ran == 2);
      const auto announced = vigil::runtime::current().make_work_guard();
      vigil::latch posted(1);
      post([&] { posted.count_down(); });
      posted.wait();
    });
  }

  // Asio: the associated executor goes before its copies; a cancellation that
  // dispatches on it.
  TEST_CASE("a handler of the operation's may come when the operation is over") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      const int all = rounds(200);
      const auto announced = vigil::runtime::current().make_work_guard();
      vigil::latch late(all);
      for (int i = 0; i < all; ++i)
        first_of_two(
            c, [&] { late.count_down(); }, use_fiber);
      late.wait();
    });
  }

  // Asio: the associated executor goes before its copies; a cancellation that
  // dispatches on it.
  TEST_CASE("and it runs on the bound strand") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      const auto strand = asio::make_strand(c);
      const auto announced = vigil::runtime::current().make_work_guard();
      auto seen = vigil::make_channel<bool>(1);
      first_of_two(
          c,
          [&] { static_cast<void>(seen.try_send(strand.running_in_this_thread())); },
          asio::bind_executor(strand, use_fiber));
      CHECK(seen.recv() == true);
    });
  }

  TEST_CASE("a copy that is kept counts no work once the operation is over") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::io_context bound;
      std::function<void(std::function<void()>)> dispatch;
      const auto token = asio::bind_executor(bound.get_executor(), use_fiber);
      asio::async_initiate<decltype(token), void()>(
          [&](auto handler) {
            const auto here = asio::get_associated_executor(handler);
            dispatch = [here](std::function<void()> f) { asio::dispatch(here, std::move(f)); };
            std::move(handler)();
          },
          token);
      bound.run();
      CHECK(bound.stopped());
      bound.restart();
      bool ran = false;
      dispatch([&] { ran = true; });
      CHECK_FALSE(ran);  // queued like any other
      bound.poll();
      CHECK(ran);
      dispatch = nullptr;
    });
  }

  // Asio: the associated executor goes before its copies; a cancellation that
  // dispatches on it.
  TEST_CASE("a cancellation may be handled in it, and take its time") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      int asked = 0;
      const auto mark = std::make_shared<int>(0);
      const auto error = error_of([&] {
        end_when_cancelled(
            c, [&asked, mark] { ++asked; }, use_fiber.within(1ms));
      });
      CHECK(error == asio::error::timed_out);
      CHECK(asked > 0);
      CHECK(asked < 40);
      CHECK(mark.use_count() == 1);  // the executor in its slot does not keep it
      auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      cancel();
      CHECK_THROWS_AS(end_when_cancelled(
                          c, [] {}, use_fiber.under(ctx)),
                      vigil::cancelled);
    });
  }

  // Asio: the associated executor goes before its copies; a cancellation that
  // dispatches on it.
  TEST_CASE("a step that begins in answer to a cancellation is cancelled as well") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::steady_timer farewell(vigil::io::io_context(), 1h);
      const auto begin = [&](auto handler) {
        using handler_type = decltype(handler);
        struct state {
          explicit state(handler_type&& h)
              : cancels(asio::get_associated_cancellation_slot(h)), whole(std::move(h)) {}
          asio::cancellation_state cancels;
          handler_type whole;
        };
        const auto here = asio::get_associated_executor(handler);
        auto s = std::make_shared<state>(std::move(handler));
        s->cancels.slot().assign([here, s, &farewell](asio::cancellation_type_t) {
          // Kept by the handler: the next step takes this one's place in the slot.
          asio::dispatch(asio::any_io_executor(here), [kept = s, &farewell] {
            farewell.async_wait(asio::bind_cancellation_slot(
                kept->cancels.slot(), [kept](error_code error) { kept->whole(error); }));
          });
        });
      };
      const auto soon = use_fiber.within(1ms);
      const auto error =
          error_of([&] { asio::async_initiate<decltype(soon), void(error_code)>(begin, soon); });
      CHECK(error == asio::error::timed_out);
    });
  }
}
