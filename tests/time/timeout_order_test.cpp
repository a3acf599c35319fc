#include "time/timeout_order.hpp"

#include "support/in_runtime.hpp"

#include <cstddef>
#include <new>
#include <vector>

#include <doctest/doctest.h>

namespace {

using vigil::internal::nanos;
using vigil::internal::timeout_node;
using vigil::internal::timeout_order;
using vigil::testing_support::rounds;

// An order in memory that held something else before, as on a fiber's stack.
class on_used_memory {
 public:
  on_used_memory() {
    for (std::byte& b : room_)
      *const_cast<volatile std::byte*>(&b) = std::byte{0};
    order_.give_room(*::new (room_) timeout_order::room);
  }

  timeout_order& operator*() noexcept { return order_; }

 private:
  alignas(timeout_order::room) std::byte room_[sizeof(timeout_order::room)];
  timeout_order order_;
};

void put(timeout_order& to, timeout_node& n, nanos time) {
  n.touched.store(time);
  to.insert(n, time);
}

}  // namespace

TEST_SUITE("timeout_order") {
  TEST_CASE("an entry is moved at most once for each digit of its time, among ten or a million") {
    constexpr nanos span = nanos{1} << 36;  // nine digits: 69 s
    for (const int n : {10, 1000, rounds(1'000'000)}) {
      CAPTURE(n);
      timeout_order::room room;
      timeout_order order(room);
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

  TEST_CASE("what comes late is in order, also among those that were touched since they came") {
    timeout_order::room room;
    timeout_order order(room);
    order.begin_at(1000);
    timeout_node a;
    timeout_node b;
    timeout_node c;
    timeout_node d;
    put(order, a, 700);
    put(order, b, 500);
    put(order, c, 600);
    b.touched.store(5000);
    put(order, d, 650);
    for (timeout_node* const expected : {&c, &d, &a, &b}) {
      unsigned moves = 10;
      timeout_node* const n = order.first(6000, moves).first;
      CHECK(n == expected);
      REQUIRE(n != nullptr);
      timeout_order::unlink(*n);
    }
  }

  // A slot that has been emptied is not known to be empty until somebody looks.
  TEST_CASE("what is taken from another says nothing about the slots that are empty there") {
    timeout_order::room room;
    timeout_order from(room);
    from.begin_at(1);
    timeout_node gone;
    timeout_node stays;
    put(from, gone, 1000);
    put(from, stays, 100'000);
    timeout_order::unlink(gone);

    on_used_memory to;
    (*to).take(from);
    timeout_node first;
    timeout_node second;
    put(*to, first, 1000);  // both in the slot of the one that is gone
    put(*to, second, 1001);
    unsigned moves = 64;
    CHECK((*to).first(2000, moves).first == &first);
    timeout_order::unlink(first);
    CHECK((*to).first(2000, moves).first == &second);
    timeout_order::unlink(second);
    CHECK((*to).first(200'000, moves).first == &stays);
    timeout_order::unlink(stays);
    CHECK(moves > 48);
    CHECK(from.any() == nullptr);
  }
}
