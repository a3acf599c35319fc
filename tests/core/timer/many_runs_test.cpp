// The counts in a timer record's word, at numbers that a program may reach.
#include "core/timer/stop_waiters.hpp"
#include "core/timer/timer_service.hpp"
#include "core/timer/timer_test.hpp"

namespace {

using namespace vigil::testing_support;
using vigil::detail::timer_record;

constexpr int many = 70'000;

template <class F>
timer_record& make_timer(F f) {
  constexpr std::int64_t hour = std::chrono::nanoseconds(1h).count();
  return *vigil::detail::after_func(hour, vigil::detail::callback(std::move(f)), {});
}

}  // namespace

TEST_SUITE("a timer's counts") {
  TEST_CASE("hold 70 000 runs at once, as a callback that parks and is reset makes them") {
    in_virtual([] {
      auto kept = std::make_shared<int>(7);
      const std::weak_ptr<int> watch = kept;
      timer_record& t = make_timer([p = std::move(kept)] { CHECK(*p == 7); });
      vigil::detail::stop_waiters waiters;
      for (int i = 0; i < many; ++i)
        REQUIRE(t.begin_run() == timer_record::begun::yes);
      CHECK(t.is_running());
      for (int i = 0; i < many; ++i) {
        REQUIRE(t.is_running());
        waiters.end_run(t);
      }
      CHECK_FALSE(t.is_running());
      CHECK_FALSE(watch.expired());
      vigil::sleep_for(2h);
      CHECK_FALSE(watch.expired());  // the handle
      t.release();
      CHECK(watch.expired());
    });
  }

  TEST_CASE("hold 70 000 handles beside the runs") {
    in_virtual([] {
      bool has_run = false;
      timer_record& t = make_timer([&] { has_run = true; });
      for (int i = 0; i < many; ++i)
        t.retain();
      CHECK_FALSE(t.is_running());
      for (int i = 0; i < many; ++i)
        t.release();
      vigil::sleep_for(2h);
      CHECK(has_run);
      t.release();
    });
  }
}
