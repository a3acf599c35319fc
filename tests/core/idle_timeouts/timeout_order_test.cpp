#include "core/idle_timeouts/timeout_order.hpp"

#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

namespace {

using vigil::detail::nanos;
using vigil::detail::timeout_node;
using vigil::detail::timeout_order;
using vigil::testing_support::rounds;

void put(timeout_order& to, timeout_node& n, nanos time) {
  n.touched.store(time);
  to.insert(n, time);
}

}  // namespace

TEST_SUITE("timeout_order") {
  TEST_CASE("an entry is moved at most once for each digit of its time, among ten or a million") {
    constexpr nanos span = nanos{1} << 36;  // nine digits: 69 s
    for (const int n : {10, 1000, rounds(1'000'000)}) {
      NOTE("n: ", n);
      timeout_order::room room;
      timeout_order order;
      order.give_room(room);
      order.begin_at(1);
      std::vector<timeout_node> entries(static_cast<std::size_t>(n));
      nanos time = 1;
      for (timeout_node& e : entries) {
        put(order, e, time);
        time += span / n;
      }
      bool is_first = true;
      unsigned long moved = 0;
      for (timeout_node& e : entries) {
        constexpr unsigned any_number = 1U << 30;
        unsigned left = any_number;
        is_first = is_first && order.first(e.touched.load(), left).first == &e;
        moved += any_number - left;
        timeout_order::unlink(e);
      }
      CHECK(is_first);
      CHECK(moved <= 9UL * static_cast<unsigned long>(n));
    }
  }
}
