#include "core/base/nanos.hpp"

#include <limits>

#include <doctest/doctest.h>

using namespace vigil::detail;

TEST_SUITE("nanos") {
  TEST_CASE("sums that fit are exact") {
    CHECK(saturating_add(2, 3) == 5);
    CHECK(saturating_add(never - 1, 1) == never);
    CHECK(saturating_add(-2, -3) == -5);
  }

  TEST_CASE("a deadline too far away becomes never (P12)") {
    CHECK(saturating_add(never, 1) == never);
    CHECK(saturating_add(1, never) == never);
    CHECK(saturating_add(never, never) == never);
  }

  TEST_CASE("a deadline too far back becomes the earliest one, not a late one (P12)") {
    constexpr nanos earliest = std::numeric_limits<nanos>::min();
    CHECK(saturating_add(earliest, -1) == earliest);
    CHECK(saturating_add(-1, earliest) == earliest);
  }

  TEST_CASE("never plus a negative duration is no longer never") {
    CHECK(saturating_add(never, -1) == never - 1);
  }
}
