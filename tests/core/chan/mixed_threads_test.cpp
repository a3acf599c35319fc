// Fibers and plain threads on the same channels, in real time (mixed_round.hpp).
#include "core/chan/mixed_round.hpp"
#include "core/chan/random_form.hpp"
#include "support/in_runtime.hpp"

#include <cstdint>

using namespace vigil::testing_support;

TEST_SUITE("fibers and threads on the same channels") {
  TEST_CASE("each value arrives once and in order, each arming ends once, and no waiter is left") {
    for (const unsigned workers : {2U, 8U}) {
      draw_until(operations(200'000) / 2, [&](std::uint64_t seed) {
        std::uint64_t made = 0;
        in_runtime({.workers = {workers}}, [&](vigil::runtime& rt) {
          mixed_round round(seed);
          round.run();
          made = round.operations();
          REQUIRE(round.wrong() == "");
          REQUIRE(rt.stats().timers_pending == 0);
        });
        return made;
      });
    }
  }
}
