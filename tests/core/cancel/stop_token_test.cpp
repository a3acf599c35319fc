// Contexts from std::stop_token, and tokens of contexts.
#include "core/cancel/cancel_test.hpp"

#include <vigil/stop_token.hpp>

#include <stop_token>
#include <thread>

namespace {

using namespace vigil::testing_support;
using vigil::cancellable;

}  // namespace

TEST_SUITE("contexts and stop tokens") {
  TEST_CASE("a stop that is requested ends the context, and so do its parent and its cancel") {
    in_virtual([] {
      std::stop_source source;
      auto parent = with_cancel(background());
      auto a = vigil::with_stop_token(parent.ctx, source.get_token());
      auto b = vigil::with_stop_token(parent.ctx, source.get_token());
      CHECK(is_open(a.ctx));
      b.cancel(failure{2});
      CHECK(number_of(b.ctx) == 2);
      source.request_stop();
      CHECK(is_cancelled(a.ctx));
      CHECK(number_of(b.ctx) == 2);
      CHECK(is_cancelled(vigil::with_stop_token(parent.ctx, source.get_token()).ctx));
      std::stop_source other;
      auto c = vigil::with_stop_token(parent.ctx, other.get_token());
      parent.cancel();
      CHECK(is_cancelled(c.ctx));
      CHECK_FALSE(other.stop_requested());
    });
  }

  TEST_CASE("a context that has gone hears no more of its token") {
    std::stop_source source;
    { const auto gone = vigil::with_stop_token(background(), source.get_token()); }
    CHECK(source.request_stop());
  }

  TEST_CASE("a token of a context is asked when the context is done, once, by the canceller") {
    auto it = with_cancel(background());
    const std::stop_token token = vigil::stop_token_of(it.ctx);
    CHECK(token == vigil::stop_token_of(it.ctx));
    int asked = 0;
    const std::stop_callback callback(token, [&] { ++asked; });
    CHECK(token.stop_possible());
    CHECK_FALSE(token.stop_requested());
    it.cancel();
    CHECK(asked == 1);
    CHECK(token.stop_requested());
    it.cancel();
    CHECK(asked == 1);
    CHECK(vigil::stop_token_of(it.ctx).stop_requested());
    auto done = with_cancel(background());
    done.cancel();
    CHECK(vigil::stop_token_of(done.ctx).stop_requested());
    CHECK_FALSE(vigil::stop_token_of(background()).stop_possible());
  }

  TEST_CASE("the last handle may be dropped in the very callback of the token") {
    std::stop_source source;
    auto it =
        std::make_unique<cancellable>(vigil::with_stop_token(background(), source.get_token()));
    const std::stop_callback callback(vigil::stop_token_of(it->ctx), [&] { it.reset(); });
    source.request_stop();
    CHECK(it == nullptr);
  }

  TEST_CASE("a jthread's token ends with the context") {
    auto it = with_cancel(background());
    std::atomic<bool> ended{false};
    std::thread worker([token = vigil::stop_token_of(it.ctx), &ended] {
      while (!token.stop_requested())
        std::this_thread::yield();
      ended = true;
    });
    it.cancel();
    worker.join();
    CHECK(ended.load());
  }
}
