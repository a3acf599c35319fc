// Refused calls, and the texts of the refusals.
#include "core/cancel/cancel_test.hpp"

#include <vigil/single_flight.hpp>
#include <vigil/stop_token.hpp>

#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

namespace {

using namespace vigil::testing_support;

template <class F>
bool says_what_to_do(F f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return std::string(e.what()).find("background()") != std::string::npos;
  }
  return false;
}

}  // namespace

// A runtime's root and a context that is never done have no cancel function.
static_assert(!std::is_constructible_v<vigil::cancel_function, context>);

TEST_SUITE("contexts: bad input") {
  // Go: TestInvalidDerivedFail.
  TEST_CASE("a nil parent is refused, and the message gives the remedy") {
    in_virtual([] {
      const context nil;
      static const vigil::context_key<int> key;
      CHECK_FALSE(static_cast<bool>(nil));
      CHECK(says_what_to_do([&] { static_cast<void>(vigil::with_cancel(nil)); }));
      CHECK(says_what_to_do([&] { static_cast<void>(vigil::with_timeout(nil, 1s)); }));
      CHECK(says_what_to_do(
          [&] { static_cast<void>(vigil::with_deadline(nil, vigil::clock::now())); }));
      CHECK(says_what_to_do([&] { static_cast<void>(vigil::with_value(nil, key, 1)); }));
      CHECK(says_what_to_do([&] { static_cast<void>(vigil::without_cancel(nil)); }));
      CHECK(says_what_to_do([&] { static_cast<void>(vigil::with_stop_token(nil, {})); }));
      CHECK(says_what_to_do([&] { static_cast<void>(vigil::stop_token_of(nil)); }));
      CHECK(says_what_to_do([&] { vigil::after_func(nil, [] {}); }));
    });
  }

  TEST_CASE("a nil context is refused by its own members and by every wait") {
    in_virtual([] {
      const context nil;
      static const vigil::context_key<int> key;
      const auto c = vigil::make_channel<int>(1);
      auto f = vigil::spawn([] {});
      CHECK(says_what_to_do([&] { nil.done(); }));
      CHECK(says_what_to_do([&] { nil.is_done(); }));
      CHECK(says_what_to_do([&] { nil.error(); }));
      CHECK(says_what_to_do([&] { nil.cause(); }));
      CHECK(says_what_to_do([&] { nil.deadline(); }));
      CHECK(says_what_to_do([&] { nil.value(key); }));
      CHECK(says_what_to_do([&] { c.send(1, nil); }));
      CHECK(says_what_to_do([&] { c.recv(nil); }));
      CHECK(says_what_to_do([&] { vigil::sleep_for(1s, nil); }));
      CHECK(says_what_to_do([&] { vigil::sleep_until(vigil::clock::now(), nil); }));
      CHECK(says_what_to_do([&] { f.join(nil); }));
      CHECK(says_what_to_do([&] { vigil::select(vigil::on_done(nil)); }));
      vigil::mutex m;
      vigil::shared_mutex shared;
      vigil::condition_variable changed;
      vigil::wait_group none;
      vigil::latch open(0);
      vigil::latch both(2);
      vigil::rate_limiter limiter(vigil::rate::per(1, 1s), 1);
      const auto timer = vigil::after_func(1h, [] {});
      vigil::semaphore permits(1);
      vigil::once once;
      vigil::single_flight<int, int> flights;
      vigil::group g;
      CHECK(says_what_to_do([&] { m.lock(nil); }));
      CHECK(says_what_to_do([&] { shared.lock(nil); }));
      CHECK(says_what_to_do([&] { shared.lock_shared(nil); }));
      std::unique_lock held(m);
      CHECK(says_what_to_do([&] { changed.wait(held, nil); }));
      CHECK(says_what_to_do([&] { changed.wait(held, nil, [] { return true; }); }));
      CHECK(says_what_to_do([&] { none.wait(nil); }));
      CHECK(says_what_to_do([&] { open.wait(nil); }));
      CHECK(says_what_to_do([&] { both.arrive_and_wait(nil); }));
      CHECK(both.count() == 2);
      CHECK(says_what_to_do([&] { limiter.wait(nil); }));
      CHECK(limiter.allow());
      CHECK(says_what_to_do([&] { timer.stop_and_wait(nil); }));
      CHECK(timer.stop());
      CHECK(says_what_to_do([&] { permits.acquire(nil); }));
      CHECK(says_what_to_do([&] { once.call(nil, [] {}); }));
      CHECK(says_what_to_do([&] { flights.call(1, nil, [] { return 1; }); }));
      CHECK(says_what_to_do([&] { vigil::blocking(nil, [] {}); }));
      CHECK(says_what_to_do([&] { g.wait(nil); }));
      g.wait();
      CHECK(m.try_lock() == false);  // held as before
      CHECK(c.size() == 0);
      f.join();
    });
  }

  TEST_CASE("a cancel twice, or of nothing, does nothing") {
    auto it = vigil::with_cancel(background());
    it.cancel(std::runtime_error("first"));
    it.cancel(std::runtime_error("second"));
    CHECK_THROWS_WITH(std::rethrow_exception(it.ctx.cause()), "first");
    const vigil::cancel_function nothing;
    nothing();
  }

  TEST_CASE("a deadline on a thread without a runtime is refused, one that has passed is not") {
    try {
      static_cast<void>(vigil::with_timeout(background(), 1s));
      FAIL("not refused");
    } catch (const vigil::wrong_place& e) {
      CHECK(std::string(e.what()).find("make it on a fiber") != std::string::npos);
    }
    CHECK(vigil::with_timeout(background(), 0s).ctx.is_done());
    CHECK_THROWS_AS(vigil::after_func(background(), [] {}), vigil::wrong_place);
  }

  TEST_CASE("an empty function is refused") {
    in_virtual([] {
      void (*const none)() = nullptr;
      CHECK_THROWS_WITH_AS(vigil::after_func(background(), none),
                           "vigil::after_func: the function is empty (null)",
                           std::invalid_argument);
    });
  }

  TEST_CASE("everything keeps working after the runtime has gone") {
    context ctx;
    vigil::cancel_function cancel;
    vigil::done_callback f;
    in_virtual([&] {
      auto it = vigil::with_timeout(vigil::without_cancel(background()), 1h);
      ctx = it.ctx;
      cancel = it.cancel;
      f = vigil::after_func(ctx, [] {});
    });
    CHECK_FALSE(ctx.is_done());
    std::thread([&] {
      CHECK_THROWS_AS((cancel(), vigil::make_channel<int>().recv(ctx)), vigil::cancelled);
    }).join();
    CHECK(ctx.is_done());
    CHECK_FALSE(f.stop());
    CHECK(vigil::with_cancel(ctx).ctx.is_done());
  }
}
