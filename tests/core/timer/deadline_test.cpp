// Queries of a timer: deadline, remaining, ref and unref.
#include "core/timer/timer_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("timer deadline") {
  // Node, libuv: due_in.
  TEST_CASE("and remaining tell when it runs next, and the maximum if it does not") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      timer t = after_func(10s, [] {});
      CHECK(t.deadline() == start + 10s);
      CHECK(t.remaining() == 10s);
      sleep_for(4s);
      CHECK(t.deadline() == start + 10s);
      CHECK(t.remaining() == 6s);
      t.reset(1h);
      CHECK(t.remaining() == 1h);
      t.stop();
      CHECK(t.deadline() == vigil::clock::time_point::max());
      CHECK(t.remaining() == nanoseconds::max());
      t.reset(1s);
      sleep_for(2s);
      CHECK(t.deadline() == vigil::clock::time_point::max());
      const timer none;
      CHECK(none.deadline() == vigil::clock::time_point::max());
      CHECK(none.remaining() == nanoseconds::max());
    });
  }

  TEST_CASE("inside the callback there is no deadline") {
    in_virtual([] {
      timer t;
      bool none = false;
      t = after_func(1s, [&] { none = t.deadline() == vigil::clock::time_point::max(); });
      sleep_for(2s);
      CHECK(none);
    });
  }

  // Node, libuv: due_in.
  TEST_CASE("remaining is zero while the callback is due and waits for its turn") {
    in_virtual([] {
      timer t = after_func(0s, [] {});
      CHECK(t.remaining() == 0s);
      CHECK(t.deadline() == vigil::clock::now());
      CHECK(t.reset(-5s));
      CHECK(t.remaining() == 0s);
      t.stop();
    });
  }

  // Node, libuv: ref, unref, hasRef.
  TEST_CASE("ref and unref are a flag, set at the start") {
    in_virtual([] {
      timer t = after_func(1s, [] {});
      CHECK(t.has_ref());
      t.unref();
      t.unref();
      CHECK_FALSE(t.has_ref());
      t.ref();
      CHECK(t.has_ref());
      CHECK_FALSE(timer().has_ref());
      t.stop();
    });
  }
}
