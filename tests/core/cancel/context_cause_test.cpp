// Why a context has ended: its error and its cause.
#include "core/cancel/cancel_test.hpp"
#include "support/note.hpp"

#include <stdexcept>

using namespace vigil::testing_support;

TEST_SUITE("context") {
  // Go: TestDeadlineExceededSupportsTimeout, -IsNetError.
  TEST_CASE("the error of a deadline is a timeout, of a cancel a cancellation, in std's terms") {
    in_virtual([] {
      CHECK(with_timeout(background(), 0s).ctx.error() == std::errc::timed_out);
      auto it = with_cancel(background());
      it.cancel();
      CHECK(it.ctx.error() == std::errc::operation_canceled);
      CHECK_FALSE(it.ctx.error() == std::errc::timed_out);
    });
  }

  // Parent and child, each cancelled with a cause (its number), without one, or not at
  // all.
  // Go: TestCause.
  TEST_CASE("the first end decides the cause") {
    in_virtual([] {
      constexpr int no = -9;
      const auto end = [](const vigil::cancel_function& cancel, int how) {
        if (how == 0) cancel();
        if (how == 1) cancel(nullptr);
        if (how > 1) cancel(failure{how});
      };
      struct row {
        int parent, child;
        bool child_first;
        int cause_of_parent, cause_of_child;
      };
      const row rows[] = {
          {no, no, false, 0, 0},   // open
          {0, no, false, -1, -1},  // no cause: cancelled
          {1, no, false, -1, -1},  // a null cause as well
          {5, no, false, 5, 5},    // a cause goes down
          {no, 6, false, 0, 6},    // and not up
          {5, 6, false, 5, 5},     // parent before child
          {5, 6, true, 5, 6},      // child before parent
          {5, 0, false, 5, 5},     // parent's cause before none
          {5, 0, true, 5, -1},     // none before the parent's
          {0, 6, false, -1, -1},   // the parent's none before a cause
          {0, 6, true, -1, 6},     // a cause before the parent's none
      };
      for (const row& r : rows) {
        NOTE("r.parent: ", r.parent);
        NOTE("r.child: ", r.child);
        auto parent = with_cancel(background());
        auto child = with_cancel(parent.ctx);
        if (r.child_first) end(child.cancel, r.child);
        end(parent.cancel, r.parent);
        if (!r.child_first) end(child.cancel, r.child);
        CHECK(number_of(parent.ctx) == r.cause_of_parent);
        CHECK(number_of(child.ctx) == r.cause_of_child);
      }
    });
  }

  // Go: TestCause.
  TEST_CASE("the cause of a deadline is its own, a cancel's is not") {
    in_virtual([] {
      CHECK(number_of(with_timeout(background(), 0s).ctx) == -2);
      CHECK(number_of(with_timeout(background(), 0s, cause_of(4)).ctx) == 4);
      auto cancelled_first = with_timeout(background(), 1h, cause_of(4));
      cancelled_first.cancel();
      CHECK(number_of(cancelled_first.ctx) == -1);
      auto parent = with_cancel(background());
      auto stacked = with_timeout(parent.ctx, 1s, cause_of(4));
      auto by_parent = with_timeout(parent.ctx, 1h, cause_of(5));
      sleep_for(2s);
      CHECK(number_of(stacked.ctx) == 4);
      CHECK(is_timed_out(stacked.ctx));
      parent.cancel(failure{6});
      CHECK(number_of(stacked.ctx) == 4);
      CHECK(number_of(by_parent.ctx) == 6);
      CHECK(is_cancelled(by_parent.ctx));
    });
  }

  TEST_CASE("a cause may be an error code or any exception") {
    auto by_code = with_cancel(background());
    by_code.cancel(std::make_error_code(std::errc::connection_reset));
    CHECK_THROWS_AS(std::rethrow_exception(by_code.ctx.cause()), std::system_error);
    auto by_exception = with_cancel(background());
    by_exception.cancel(std::runtime_error("why"));
    CHECK_THROWS_WITH(std::rethrow_exception(by_exception.ctx.cause()), "why");
  }

  // Go: TestCauseRace.
  TEST_CASE("a cause may be read while it is being set") {
    in_runtime({{2}, {}}, [] {
      for (int round = 0; round < rounds(2000); ++round) {
        auto it = with_cancel(background());
        auto reader = vigil::spawn([&] {
          while (it.ctx.cause() == nullptr)
            vigil::this_fiber::yield();
          return number_of(it.ctx);
        });
        it.cancel(failure{round + 1});
        CHECK(reader.join() == round + 1);
      }
    });
  }
}
