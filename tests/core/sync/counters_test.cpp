// The timed waits that wait_group, latch and semaphore share.
#include "core/sync/sync_test.hpp"

using namespace vigil::testing_support;
using vigil::latch;
using vigil::semaphore;
using vigil::wait_group;

TEST_SUITE("counters with a timeout") {
  TEST_CASE("zero or less only looks, a huge one never comes, a deadline is of any clock") {
    in_virtual([] {
      wait_group group;
      group.add();
      latch closed(1);
      semaphore none(0);
      using std::chrono::nanoseconds;
      const auto start = clock::now();
      for (const nanoseconds d : {0ns, -1ns, nanoseconds::min()}) {
        CHECK_FALSE(group.wait_for(d));
        CHECK_FALSE(closed.wait_for(d));
        CHECK_FALSE(none.try_acquire_for(d));
      }
      CHECK_FALSE(group.wait_until(start - 1h));
      CHECK_FALSE(closed.wait_until(std::chrono::steady_clock::now() - 1s));
      CHECK_FALSE(none.try_acquire_until(std::chrono::system_clock::now() - 1s));
      CHECK(since(start) == 0s);
      CHECK_FALSE(closed.wait_until(std::chrono::steady_clock::now() + 1h));
      CHECK(since(start) > 59min);
      CHECK(since(start) <= 1h);

      const auto opener = spawn([&] {
        sleep_for(24h * 365 * 100);
        group.done();
        sleep_for(1h);
        closed.count_down();
        sleep_for(1h);
        none.release();
      });
      CHECK(group.wait_for(std::chrono::hours::max()));
      CHECK(closed.wait_until(clock::time_point::max()));
      CHECK(none.try_acquire_for(nanoseconds::max()));
      CHECK(since(start) > 24h * 365 * 100);
    });
  }
}
